"""Turns a crash of ONNX Runtime GenAI 0.18 into an error.

Each time a model is created on this provider, GenAI 0.18 releases the allocator that all earlier generators took their
memory from. A generator that is still alive later frees its memory through that released object, inside ONNX Runtime,
which is a segmentation fault. The execution provider owns neither object, so it cannot keep them alive. It can only
refuse the model before GenAI starts to create it.

Later versions of GenAI keep the allocator while a model on this provider is alive.
"""
import gc
import weakref
from pathlib import Path

_AFFECTED = "0.18."
_MESSAGE = """\
a generator of another model is still alive, and ONNX Runtime GenAI {version} would crash when it is deleted later
  help: delete it before you create the next model ("del generator"; in a notebook also restart the kernel if an exception \
or an interrupted cell keeps it), or create all models before the first generator"""

# Objects with memory on the device, and configurations that are known to use only other providers.
_holders = weakref.WeakSet()
_elsewhere = weakref.WeakSet()


def guard(og) -> None:
    """Makes `og.Model` raise an error where GenAI would crash. Does nothing for versions that do not crash."""
    if not getattr(og, "__version__", "").startswith(_AFFECTED) or hasattr(og.Model.__init__, "__wrapped__"):
        return
    for name in ("Generator", "MtpGenerator", "Engine"):
        _after(getattr(og, name), "__init__", _hold)
    _after(og.Config, "__init__", lambda config, folder: _note(config, _text(folder), fresh=True))
    _after(og.Config, "clear_providers", lambda config: _elsewhere.add(config))
    _after(og.Config, "append_provider", _note)
    _after(og.Config, "set_provider_option", lambda config, provider, *_: _note(config, provider))
    _after(og.Config, "overlay", _note)
    _before(og.Model, "__init__", lambda _, source: _check(source, og.__version__))


def _hold(holder, model, *_) -> None:
    if model.device_type.upper() == "AMDGPU":
        _holders.add(holder)


def _note(config, text, fresh=False) -> None:
    """Records whether a configuration may use this provider, given the new `text` in it."""
    if "amdgpu" in text.lower():
        _elsewhere.discard(config)
    elif fresh:
        _elsewhere.add(config)


def _check(source, version) -> None:
    """Raises an error if creating a model from `source`, a configuration or a folder, would lead to the crash."""
    if not _holders or _is_elsewhere(source):
        return
    gc.collect()  # unreachable generators may be alive in reference cycles
    if _holders:
        raise RuntimeError(_MESSAGE.format(version=version))


def _is_elsewhere(source) -> bool:
    return "amdgpu" not in _text(source).lower() if isinstance(source, str) else source in _elsewhere


def _text(folder) -> str:
    """Returns the configuration in a model's folder. GenAI itself reports one that cannot be read."""
    try:
        return Path(folder, "genai_config.json").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return "amdgpu"


def _after(kind, name, act) -> None:
    original = getattr(kind, name)

    def method(self, *arguments, **named):
        result = original(self, *arguments, **named)
        act(self, *arguments, **named)
        return result

    _replace(kind, name, method, original)


def _before(kind, name, act) -> None:
    original = getattr(kind, name)

    def method(self, *arguments, **named):
        act(self, *arguments, **named)
        return original(self, *arguments, **named)

    _replace(kind, name, method, original)


def _replace(kind, name, method, original) -> None:
    method.__name__, method.__doc__, method.__wrapped__ = name, original.__doc__, original
    setattr(kind, name, method)
