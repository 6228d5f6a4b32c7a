"""The application with settings from environment variables such as RAY_AMDGPU_EP_MODEL, for `serve build`."""
import os

from . import application
from .settings import Settings

PREFIX = "RAY_AMDGPU_EP_"

app = application(
    Settings(**{name.removeprefix(PREFIX).lower(): value for name, value in os.environ.items() if name.startswith(PREFIX)})
)
