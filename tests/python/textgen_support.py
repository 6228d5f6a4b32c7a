"""Text generation of the `amdgpu-ep` command."""
from command_support import document


def command_tokens(folder, prompt, count, *arguments):
    """The command's JSON document for `count` tokens after `prompt`."""
    return document("generate", folder, "-", "--max-new-tokens", str(count), *arguments, stdin=prompt)
