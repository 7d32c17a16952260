/*
 * Do vector, mask, x87 and control registers keep their values across system calls, switches between threads and processes,
 * faults, signal handlers that use them, and fork? Prints "ok" and the number of checks, or what was lost. Run: registers
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define VECTORS 32
#define THREADS 4
#define ROUNDS 1500

struct state {
	uint8_t vector[VECTORS][64];
	uint64_t mask[8];
	double x87;
	uint32_t mxcsr;
	uint16_t control;
};

static int wide;
static volatile long checks;

static void fill(struct state *s, unsigned seed)
{
	for (size_t i = 0; i < sizeof(s->vector); i++)
		((uint8_t *)s->vector)[i] = (uint8_t)((i * 31 + seed * 7 + i / 64) ^ seed >> 3);
	for (int i = 0; i < 8; i++)
		s->mask[i] = 0x0123456789abcdefULL * (seed + i + 1);
	s->x87 = seed * 1.5 + 0.25;
	s->mxcsr = 0x1f80 | (seed & 3) << 13;
	s->control = 0x37f;
}

#define EACH16(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15)
#define EACH32(M) EACH16(M) M(16) M(17) M(18) M(19) M(20) M(21) M(22) M(23) M(24) M(25) M(26) M(27) M(28) M(29) M(30) M(31)
#define LOADZ(n) "vmovdqu64 " #n "*64(%[in]), %%zmm" #n "\n"
#define STOREZ(n) "vmovdqu64 %%zmm" #n ", " #n "*64(%[out])\n"
#define LOADX(n) "movdqu " #n "*64(%[in]), %%xmm" #n "\n"
#define STOREX(n) "movdqu %%xmm" #n ", " #n "*64(%[out])\n"
#define EACHK(M) M(1) M(2) M(3) M(4) M(5) M(6) M(7)
#define LOADK(n) "kmovq " #n "*8(%[km]), %%k" #n "\n"
#define VECTOR_CLOBBERS "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", \
			"xmm13", "xmm14", "xmm15"
#define STOREK(n) "kmovq %%k" #n ", " #n "*8(%[ko])\n"

/* Everything loaded, one system call, everything stored: nothing of C in between can hide a loss */
static long across_syscall(struct state *in, struct state *out, long number, long a, long b)
{
	register long r_a asm("rdi") = a;
	register long r_b asm("rsi") = b;
	long ret = number;

	memset(out, 0, sizeof(*out));
	asm volatile("ldmxcsr %[mx]\n fldl %[x]\n" : : [mx] "m"(in->mxcsr), [x] "m"(in->x87));
	if (wide)
		asm volatile(EACH32(LOADZ) EACHK(LOADK) "syscall\n" EACH32(STOREZ) EACHK(STOREK)
			     : "+a"(ret)
			     : [in] "r"(in->vector), [out] "r"(out->vector), [km] "r"(in->mask), [ko] "r"(out->mask),
			       "r"(r_a), "r"(r_b)
			     : "rcx", "r11", "memory", VECTOR_CLOBBERS);
	else
		asm volatile(EACH16(LOADX) "syscall\n" EACH16(STOREX)
			     : "+a"(ret)
			     : [in] "r"(in->vector), [out] "r"(out->vector), "r"(r_a), "r"(r_b)
			     : "rcx", "r11", "memory", VECTOR_CLOBBERS);
	asm volatile("stmxcsr %[mx]\n fstpl %[x]\n" : [mx] "=m"(out->mxcsr), [x] "=m"(out->x87));
	return ret;
}

/* The same across a load from a page that is not there yet */
static void across_fault(struct state *in, struct state *out, volatile char *page)
{
	memset(out, 0, sizeof(*out));
	asm volatile("ldmxcsr %[mx]\n fldl %[x]\n" : : [mx] "m"(in->mxcsr), [x] "m"(in->x87));
	if (wide)
		asm volatile(EACH32(LOADZ) EACHK(LOADK) "movb $1, (%[page])\n" EACH32(STOREZ) EACHK(STOREK)
			     :
			     : [in] "r"(in->vector), [out] "r"(out->vector), [km] "r"(in->mask), [ko] "r"(out->mask),
			       [page] "r"(page)
			     : "memory", VECTOR_CLOBBERS);
	else
		asm volatile(EACH16(LOADX) "movb $1, (%[page])\n" EACH16(STOREX)
			     :
			     : [in] "r"(in->vector), [out] "r"(out->vector), [page] "r"(page)
			     : "memory", VECTOR_CLOBBERS);
	asm volatile("stmxcsr %[mx]\n fstpl %[x]\n" : [mx] "=m"(out->mxcsr), [x] "=m"(out->x87));
}

static void verify(const struct state *in, const struct state *out, const char *what)
{
	uint32_t mask = 0x1f80 | 3 << 13;

	for (int i = 0; i < (wide ? 32 : 16); i++)
		if (memcmp(in->vector[i], out->vector[i], wide ? 64 : 16)) {
			printf("lost: vector register %d across %s\n", i, what);
			exit(1);
		}
	for (int i = 1; wide && i < 8; i++)
		if (in->mask[i] != out->mask[i]) {
			printf("lost: mask register %d across %s\n", i, what);
			exit(1);
		}
	if (in->x87 != out->x87 || (in->mxcsr & mask) != (out->mxcsr & mask)) {
		printf("lost: x87 or MXCSR across %s\n", what);
		exit(1);
	}
	__atomic_add_fetch(&checks, 1, __ATOMIC_RELAXED);
}

/* A handler that leaves nothing of the registers as it was */
static void clobber(int sig)
{
	struct state mine, out;

	fill(&mine, 200 + sig);
	across_syscall(&mine, &out, SYS_getppid, 0, 0);
	verify(&mine, &out, "a system call in a handler");
}

static void *thread(void *argument)
{
	unsigned seed = (unsigned)(uintptr_t)argument;
	struct state in, out;
	double sum = 0;

	for (int i = 0; i < ROUNDS; i++) {
		fill(&in, seed * 1000 + i);
		across_syscall(&in, &out, SYS_sched_yield, 0, 0);
		verify(&in, &out, "a switch between threads");
		across_syscall(&in, &out, SYS_tgkill, getpid(), 0);
		sum += i * 0.5;
	}
	if (sum != ROUNDS * (ROUNDS - 1) / 4.0) {
		printf("lost: arithmetic of thread %u\n", seed);
		exit(1);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	struct state in, out;
	uint32_t mxcsr;
	int status;

	asm volatile("stmxcsr %0" : "=m"(mxcsr));
	if (mxcsr != 0x1f80) {
		printf("lost: MXCSR is %x after exec\n", mxcsr);
		return 1;
	}
	wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
	signal(SIGUSR1, clobber);

	for (int i = 0; i < 300; i++) {
		fill(&in, i);
		across_syscall(&in, &out, SYS_kill, getpid(), SIGUSR1);
		verify(&in, &out, "a signal handler");
		char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		across_fault(&in, &out, page);
		verify(&in, &out, "a page fault");
		munmap(page, 4096);
	}
	for (int i = 0; i < 20; i++) {
		fill(&in, 50 + i);
		long pid = across_syscall(&in, &out, SYS_fork, 0, 0);
		verify(&in, &out, pid ? "fork, parent" : "fork, child");
		if (!pid)
			_exit(0);
		if (waitpid(pid, &status, 0) != pid || status)
			return 1;
	}
	long before = checks;
	for (int process = 0; process < 2; process++)
		if (!fork()) {
			for (long i = 0; i < THREADS; i++)
				pthread_create(&threads[i], NULL, thread, (void *)(i + 1 + process * 10));
			for (int i = 0; i < THREADS; i++)
				pthread_join(threads[i], NULL);
			_exit(checks == before + THREADS * ROUNDS ? 0 : 1);
		}
	for (int process = 0; process < 2; process++)
		if (wait(&status) < 0 || status) {
			printf("lost: a process with threads failed with status %x\n", status);
			return 1;
		}
	printf("ok, %ld checks, %s vectors\n", checks, wide ? "512 bit" : "128 bit");
	return 0;
}
