"""`emu serve`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from emulator.cli import options, output
from emulator.errors import FidelityError, UsageError

if TYPE_CHECKING:
    from emulator.study.requests import Range


def _range(_context: click.Context, _option: click.Parameter, text: str) -> "Range":
    from emulator.study.requests import Range

    try:
        return Range.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _duration(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    from emulator.spec.units import DURATION

    try:
        return DURATION.parse(text) if text is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(epilog="Example: emu serve mesh4-tb5-rdma --model qwen3-30b --rate 4 --requests 64 --seed 7")
@click.argument("topology", metavar="TOPOLOGY")
@click.option("--model", default="qwen3-30b", show_default=True, help="A model card: a name or a file.")
@click.option("--engine", default="exo-tensor", show_default=True, help="exo-tensor or mlx-ring.")
@click.option(
    "--rate", type=click.FloatRange(0.001, 1e6), default=8.0, show_default=True, help="Requests per second, on average."
)
@click.option("--requests", "count", type=click.IntRange(1, 100_000), default=64, show_default=True, help="How many.")
@click.option("--prompt", default="32..128", show_default=True, callback=_range, help="Tokens of a prompt.")
@click.option("--output", "answer", default="16..128", show_default=True, callback=_range, help="Tokens of an answer.")
@click.option(
    "--requests-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.csv",
    help="Requests of a trace in place of drawn ones: arrival_s,prompt_tokens,output_tokens.",
)
@click.option("--max-batch", type=click.IntRange(1, 256), default=8, show_default=True, help="Sequences at once.")
@click.option(
    "--prompt-piece", type=click.IntRange(1, 4096), default=64, show_default=True, help="Prompt tokens in one step."
)
@click.option("--draft", type=click.IntRange(0, 16), default=0, show_default=True, help="Tokens guessed for each step.")
@click.option("--acceptance", type=click.FloatRange(0, 1), help="Probability that a guess is right. Needs --draft.")
@click.option("--draft-time", callback=_duration, metavar="DURATION", help="To guess one token. Needs --draft.")
@click.option(
    "--teraflops",
    type=click.FloatRange(0.001, 1e5),
    default=20.0,
    show_default=True,
    help="1e12 operations per second that a node reaches on prompts and large batches.",
)
@options.ideal
@options.place
@options.seed
@options.limit
@click.option("--ignore-ports", is_flag=True, help="Allow more cables than a node's driver lets it use.")
@options.written_file("--plot", endings=(".png", ".svg", ".pdf"), help="Draw both ways of batching here.")
@options.as_json
def serve(
    topology: str,
    model: str,
    engine: str,
    rate: float,
    count: int,
    prompt: "Range",
    answer: "Range",
    requests_file: Path | None,
    max_batch: int,
    prompt_piece: int,
    draft: int,
    acceptance: float | None,
    draft_time: int | None,
    teraflops: float,
    kernel: Any,
    clock: Any,
    seed: int,
    limit: float,
    plot: Path | None,
    as_json: bool,
    **wishes: Any,
) -> None:
    """Serve requests with continuous and with static batching: throughput, time to first token, time per output token.

    Requests come by a Poisson process drawn from --seed, or from a trace. Each size of step that occurs is run once
    on the cluster with its messages and its compute time, and the schedule is then played on those step times. The same
    seed gives the same figures on the virtual clock.
    """
    from emulator.place.choose import choose
    from emulator.study.batching import Server, Speculation
    from emulator.study.requests import draw, read
    from emulator.study.serve import Wish
    from emulator.study.serve import serve as play

    given = (acceptance is not None, draft_time is not None)
    if given != (draft > 0, draft > 0):
        raise UsageError("speculative decoding takes --draft, --acceptance and --draft-time; give all three, or none")
    requests = read(requests_file) if requests_file else draw(count, rate, prompt, answer, seed)
    server = Server(max_batch, prompt_piece, Speculation(draft, acceptance or 0.0, draft_time or 0), seed)
    wish = Wish(topology, model, server, engine=engine, flops=teraflops * 1e12, seed=seed, limit_s=limit, **wishes)
    with output.progress() as progress:
        serving = play(wish, requests, choose(kernel, clock), progress)
    from emulator.report import serve as report

    if plot:
        report.draw_serving(serving, plot)
    if as_json:
        output.print_json(serving)
    else:
        for line in report.summary(serving):
            click.echo(line)
        for shown in (report.outcomes(serving), report.steps(serving)):
            click.echo()
            output.table(*shown[:3], left=shown.left)
        click.echo()
        for assumption in serving.assumptions:
            click.echo(f"- {assumption}")
        if plot:
            click.echo(f"written: {plot}")
    for warning in serving.warnings:
        output.warn(warning)
    if not serving.ok:
        raise FidelityError("the host was overloaded during a run: do not trust these figures")
