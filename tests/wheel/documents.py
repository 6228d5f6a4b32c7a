"""Examples from the documents, to run them as printed."""
import re
import shlex
from dataclasses import dataclass

from environments import ROOT

# y = relu(x @ w) of the model that `model_folder` makes, with all-ones x.
CHECK = """
import numpy as np
weight = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
found = session.run(None, {"x": np.ones((2, 4), np.float32)})[0]
np.testing.assert_allclose(found, np.maximum(np.ones((2, 4)) @ weight, 0), rtol=1e-5)
print(session.get_providers()[0])
"""

# Fences of three backticks, their attributes, and the lines up to the closing fence.
CONSOLE = re.compile(r"^```console\n(?P<lines>.*?)^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```python(?P<words>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Example:
    """A block of Python in a document."""

    page: str
    line: int
    code: str
    # Blocks that need something that tests do not have, such as a third-party library, are marked: ```python no-run
    runs: bool

    def __str__(self):
        return f"{self.page}:{self.line}"


def examples(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = ((match, text.count("\n", 0, match.start()) + 1) for match in FENCE.finditer(text))
    return [Example(page, line, match["code"], "no-run" not in match["words"].split()) for match, line in blocks]


@dataclass
class Command:
    """A command in a document, and the output printed below it."""

    page: str
    words: list[str]
    output: str

    def __str__(self):
        return " ".join([self.page, *self.words])

    def fits(self, found):
        """Whether the output matches: `[..]` stands for any text within a line, a line of `...` for any lines."""
        parts = (re.escape(line).replace(r"\[\.\.\]", ".*").rstrip() for line in self.output.splitlines())
        pattern = r"[ ]*\n".join(r"(?:.*\n)*?.*" if part == r"\.\.\." else part for part in parts)
        return re.fullmatch(pattern + r"\s*", found) is not None


def commands(page):
    found = []
    for block in CONSOLE.finditer((ROOT / page).read_text(encoding="utf-8")):
        for lines in re.split(r"^\$ ", block["lines"], flags=re.MULTILINE)[1:]:
            line, _, output = lines.partition("\n")
            found.append(Command(page, shlex.split(line), output.rstrip()))
    return found


def pages():
    """Every document of the repository that is meant for users."""
    return ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("**/*.md"))]


# Other examples may use its names: `ort`, `options`, `devices` and `session`.
README = examples("README.md")[0].code
