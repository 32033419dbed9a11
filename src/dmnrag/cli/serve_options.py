"""Options of `dmnrag serve`: each is a setting of `dmnrag.service.settings`, whose defaults they show."""

from pathlib import Path
from typing import Annotated

import typer

from dmnrag.service.settings import MASKING, AnswerSettings, LoadSettings, TrustSettings
from dmnrag.types import LAYERS

ANSWER, LOAD, TRUST = AnswerSettings(), LoadSettings(), TrustSettings()

ServeLlm = Annotated[
    str | None,
    typer.Option(
        "--llm",
        help="builtin, openai:MODEL@http://HOST:PORT/v1, a transformers name or folder, fake. Without it: search only.",
    ),
]
Host = Annotated[str, typer.Option(help="Address to listen on. Others than this machine's own need keys, or --open.")]
Port = Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)]
Page = Annotated[bool, typer.Option("--page/--no-page", help="Serve the web page, or the API alone.")]
AnyoneMayAsk = Annotated[
    bool, typer.Option("--open", help="Let everyone who reaches --host ask, without keys.", show_default=False)
]

ServeLayer = Annotated[
    str,
    typer.Option(
        "--layer",
        help=f"How the layers combine: {', '.join(LAYERS)}. Default: hybrid where the index has vectors, else sparse.",
        show_default=False,
    ),
]
ServeK = Annotated[int, typer.Option("-k", help="Documents to answer from, where a client does not say.")]
MaxK = Annotated[int, typer.Option(help="Most documents that a client may ask for.")]
ServeMaxTokens = Annotated[int, typer.Option(help="Longest answer; a client may ask for a shorter one.")]
Refuse = Annotated[
    bool,
    typer.Option(
        "--refuse/--no-refuse",
        help="Say so instead of answering where the evidence is too weak; needs `dmnrag calibrate`.",
    ),
]
NoticesOption = Annotated[
    str, typer.Option("--notices", help="Fixed texts for emergencies and the like: default, none, or a TOML file.")
]
ValidUntil = Annotated[
    str | None,
    typer.Option(
        "--valid-until-column",
        help="Column with the date up to which a document holds; later it is marked as outdated.",
        show_default=False,
    ),
]
Mask = Annotated[
    str,
    typer.Option(
        help="Phone numbers, identity numbers, e-mails and bank cards become markers before an LLM sees them: "
        f"{', '.join(MASKING)}. external: before one on another machine does."
    ),
]

Concurrency = Annotated[
    int, typer.Option("--llm-concurrency", help="Answers generated at once; a local model generates one.")
]
Queue = Annotated[int, typer.Option(help="Answers that may wait for the LLM; one more is refused with 429.")]
QueueTimeout = Annotated[float, typer.Option("--queue-timeout-s", help="Longest wait for the LLM, in seconds.")]
AnswerTimeoutOption = Annotated[
    float, typer.Option("--answer-timeout-s", help="Longest generation; what is there by then is the answer.")
]
SearchTimeout = Annotated[float, typer.Option("--search-timeout-s", help="Longest search.")]
ShutdownGrace = Annotated[
    float, typer.Option("--shutdown-grace-s", help="Running answers are finished for so long after SIGTERM.")
]
ReloadEvery = Annotated[
    float, typer.Option("--reload-every-s", help="How often DIR is looked at for a new generation; 0: never.")
]

Keys = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        help="API keys, a TOML file (docs/trust.md). Those of DMNRAG_API_KEYS, name:key,..., are added.",
        show_default=False,
    ),
]
Rate = Annotated[
    int | None,
    typer.Option(
        "--rate-per-minute",
        help="Requests of a key, or of an address where there are no keys. Default: no limit.",
        show_default=False,
    ),
]
MaxBody = Annotated[int, typer.Option("--max-body-bytes", help="Longest request.")]
MaxQuestion = Annotated[int, typer.Option("--max-question-characters", help="Longest question.")]
CorsOrigins = Annotated[
    list[str] | None,
    typer.Option(
        "--cors-origin",
        help="Web site whose pages may call the API, https://HOST; may be repeated. Default: none.",
        show_default=False,
    ),
]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        help="SQLite file for questions, answers and feedback. Default: nothing is kept, feedback is refused.",
        show_default=False,
    ),
]
Audit = Annotated[
    Path | None,
    typer.Option(
        "--audit", help="File for who asked when and got which sources; JSON lines. Default: none.", show_default=False
    ),
]
LogQuestions = Annotated[bool, typer.Option("--log-questions", help="Question text in log and audit file.")]
