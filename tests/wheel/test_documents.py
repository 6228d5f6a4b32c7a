"""Python code in the documents runs as printed, with only the wheel installed."""
import ast
import os

import pytest
from documents import CHECK, README, Command, commands, examples, pages
from environments import HOST

COMMANDS = [command for page in pages() for command in commands(page)]
EXAMPLES = [example for page in pages() for example in examples(page)]
GENAI = "import onnxruntime_genai"
# Starts a program on a machine with an emulated AMD GPU.
STARTER = os.environ.get("AMDGPU_EP_TEST_STARTER")
NO_GPU = {"AMDGPU_EP_DRIVER": "amd", "HIP_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "-1"}


def scripts(of_genai):
    """Pages with the program that each makes: all of its blocks that run, in order."""
    running = [example for example in EXAMPLES if example.runs]
    programs = {page: "\n".join(one.code for one in running if one.page == page) for page in pages()}
    return [(page, program) for page, program in programs.items() if program and (GENAI in program) == of_genai]


@pytest.mark.parametrize(("driver", "provider"), [(HOST, "AMDGPUExecutionProvider"), (NO_GPU, "CPUExecutionProvider")])
def test_the_readme_runs_word_for_word(release, model_folder, driver, provider):
    """On a device, and on a machine without one."""
    environment, _ = release
    assert environment.python("-c", README + CHECK, cwd=model_folder, env=driver).strip() == provider


@pytest.mark.skipif(not STARTER, reason="AMDGPU_EP_TEST_STARTER is not set: `cargo xtask amd` sets it")
def test_the_readme_runs_on_an_emulated_gpu(newest, model_folder):
    command = [STARTER, newest.bin / "python", "-c", README + CHECK]
    told = newest.call(command, cwd=model_folder, env={"AMDGPU_EP_DRIVER": "amd"})
    assert told.strip() == "AMDGPUExecutionProvider"


@pytest.mark.parametrize(("page", "program"), scripts(of_genai=False), ids=lambda text: text if ".md" in text else "")
def test_the_examples_of_a_page_run_after_the_readme_has(newest, model_folder, page, program):
    newest.python("-c", README + "\n" + program, cwd=model_folder, env=HOST)


@pytest.mark.parametrize(("page", "program"), scripts(of_genai=True), ids=lambda text: text if ".md" in text else "")
def test_the_examples_of_text_generation_run_by_themselves(genai, tiny_language_model, page, program):
    """`model` in the current folder is a GenAI folder."""
    told = genai.python("-c", program, cwd=tiny_language_model, env=HOST)
    assert told.strip(), "it says nothing"


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_prints_what_the_page_shows(newest, model_folder, command):
    program = newest.bin / command.words[0]
    found = newest.call([program, *command.words[1:]], cwd=model_folder, env=HOST)
    assert command.fits(found), f"the page says\n{command.output}\nand the command\n{found}"


def test_elisions_stand_for_text_in_a_line_and_for_lines():
    command = Command("page", [], "a [..] c\n...\nend")
    assert command.fits("a b c\nx\ny\nend\n") and command.fits("a  c\n\nend")
    assert not command.fits("a b d\nx\nend") and not command.fits("a b c\nx\nend.")


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_is_python(example):
    ast.parse(example.code)


def test_the_pages_have_examples():
    """The pattern still finds the examples."""
    assert len(COMMANDS) > 1 and len(scripts(of_genai=False)) > 2 and len(scripts(of_genai=True)) == 1
