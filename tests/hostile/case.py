"""What a hostile case is: a change to a good folder, the ways that meet it, and the ends that are allowed."""
from collections.abc import Callable
from dataclasses import dataclass

from place import Place

COMMAND = ("generate", "chat")
TEXT = (*COMMAND, "genai")
ALL = (*COMMAND, "python", "genai")
MODEL = (*COMMAND, "explain", "run", "python", "genai")

# Exit codes of the command: text was generated, or the command failed with a sentence.
EITHER, REFUSED, GOES_ON = (0, 2), (2,), (0,)


@dataclass(frozen=True)
class Case:
    name: str
    change: Callable[[Place], None]
    ways: tuple[str, ...] = TEXT
    ends: tuple[int, ...] = EITHER
    # What the message must name, whenever the command fails: one of these.
    names: tuple[str, ...] = ()
    # An option that a folder must not set: each way must name it in a warning or an error.
    refused: str = ""
    # Ways in which ONNX Runtime or GenAI itself acts on the key before the provider could refuse it.
    theirs: tuple[str, ...] = ()
    # `generate` puts the prompt into the folder's chat template.
    chat: bool = True
    prompt: str = "hello"
    # After which a run in Python or GenAI hangs.
    seconds: int = 60
    # More arguments of `generate` and `chat`.
    arguments: tuple[str, ...] = ()
