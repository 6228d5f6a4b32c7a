"""Text generation with the `amdgpu-ep` command."""
from command_support import document


def command_tokens(folder, prompt, count, *arguments):
    """Returns the command's JSON document for `count` tokens after `prompt`."""
    return document("generate", folder, "-", "--max-new-tokens", str(count), *arguments, stdin=prompt)
