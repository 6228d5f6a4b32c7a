"""The settings of the application, and the command line that follows from them."""
import importlib.util
import os
import shlex
import shutil
import sys
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class Share(NamedTuple):
    """What a replica may use of its GPU's memory."""

    slots: int
    max_length: int | None


class Settings(BaseModel):
    """Settings, as arguments of `serve run` or under `args` in a configuration."""

    model_config = ConfigDict(extra="forbid")

    # FOLDER or NAME=FOLDER, with an absolute path that exists on every node.
    model: str
    # A replica uses at most one GPU. With a fraction, several replicas share it, and each has that fraction of the slots.
    num_gpus: float = Field(default=1.0, ge=0, le=1)
    num_cpus: float = Field(default=1.0, ge=0)
    # Sequences that run at once on a whole GPU.
    slots: int = Field(default=8, ge=1, le=1024)
    max_length: int | None = Field(default=None, ge=1)
    min_replicas: int = Field(default=1, ge=0)
    max_replicas: int = Field(default=1, ge=1)
    session_affinity: bool = False
    # More arguments of `amdgpu-ep serve`.
    arguments: list[str] = []
    # The time until the model is ready, and the time that running requests get when the replica stops.
    start_seconds: float = Field(default=1800, gt=0)
    drain_seconds: int = Field(default=30, ge=0)

    @field_validator("arguments", mode="before")
    @classmethod
    def split(cls, value):
        """Arguments of `serve run` are strings."""
        return shlex.split(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def check(self):
        name, _, folder = self.model.partition("=")
        # As the server reads it: a folder may have an equals sign in its path.
        if not os.path.isabs(self.model if "/" in name else folder):
            raise ValueError(f"model: {self.model!r} has no absolute path; replicas run in folders of their own")
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas is {self.min_replicas}, more than max_replicas ({self.max_replicas})")
        self.share()
        return self

    def share(self):
        """The slots and the longest sequence of a replica. Less than one slot becomes one with shorter sequences."""
        if self.num_gpus in (0, 1):
            return Share(self.slots, self.max_length)
        slots = self.slots * self.num_gpus
        if slots >= 1:
            return Share(int(slots), self.max_length)
        if self.max_length is None:
            raise ValueError(
                f"{self.num_gpus} of a GPU is less than one of its {self.slots} slots; set max_length, or more slots"
            )
        return Share(1, max(1, int(self.max_length * slots)))

    def command_line(self):
        """Starts the server on a free loopback port."""
        slots, max_length = self.share()
        words = [*command(), "serve", self.model, "--host", "127.0.0.1", "--port", "0", "--slots", str(slots)]
        # Ray limits how many requests arrive, so the queue is never full.
        words += ["--queue", str(2 * slots), "--drain", str(self.drain_seconds)]
        if max_length is not None:
            words += ["--max-length", str(max_length)]
        return [*words, *self.arguments]


def command():
    """The command `amdgpu-ep`: on PATH, or in the wheel of this Python."""
    if found := shutil.which("amdgpu-ep"):
        return [found]
    if importlib.util.find_spec("amdgpu_ep"):
        return [sys.executable, "-m", "amdgpu_ep"]
    raise FileNotFoundError("amdgpu-ep is neither on PATH nor installed in this Python; install its wheel on every node")
