"""A hostile case: a change to a good folder, the ways to use the folder, and the permitted outcomes."""
from collections.abc import Callable
from dataclasses import dataclass

from place import Place

COMMAND = ("generate", "chat")
TEXT = (*COMMAND, "genai")
ALL = (*COMMAND, "python", "genai")
MODEL = (*COMMAND, "explain", "run", "python", "genai")

# Exit codes of the command: text was generated, or the command failed with an error message.
EITHER, REFUSED, GOES_ON = (0, 2), (2,), (0,)


@dataclass(frozen=True)
class Case:
    name: str
    change: Callable[[Place], None]
    ways: tuple[str, ...] = TEXT
    ends: tuple[int, ...] = EITHER
    # When the command fails, its message must contain one of these.
    names: tuple[str, ...] = ()
    # An option that a folder must not set: each way must name it in a warning or an error.
    refused: str = ""
    # Ways in which ONNX Runtime or GenAI acts on the key before the provider could reject it.
    theirs: tuple[str, ...] = ()
    # `generate` applies the folder's chat template to the prompt.
    chat: bool = True
    prompt: str = "hello"
    # The time limit of a run in Python or GenAI.
    seconds: int = 60
    # Additional arguments of `generate` and `chat`.
    arguments: tuple[str, ...] = ()
