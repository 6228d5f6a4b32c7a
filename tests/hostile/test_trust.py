"""The command line and the environment may set what a folder may not."""
import pytest
from case import Case
from cases_options import setting
from ways import run

RECORD = {"ep.hip.explain_file": "{target}/explain"}


def words_of(tools, place, way):
    return tools.words(way, Case("trusted", lambda place: None, chat=False), place)[0]


@pytest.mark.parametrize("way", ["python", "genai"])
def test_the_environment_opts_in(way, tools, place):
    setting(RECORD)(place)
    ended = run(place, words_of(tools, place, way), AMDGPU_EP_TRUST_OPTIONS="1")
    assert ended.code == 0 and ended.changes == ["+target/explain"], ended.everything()


@pytest.mark.parametrize("way", ["python", "genai"])
def test_the_environment_opts_in_for_a_library(way, tools, place):
    setting({"backend_library": "{evil}"}, "amdgpu")(place)
    ended = run(place, words_of(tools, place, way), AMDGPU_EP_TRUST_OPTIONS="1")
    assert "loaded" in ended.loads, ended.everything()


@pytest.mark.parametrize("value", ["0", "", "no"])
def test_only_an_explicit_value_opts_in(value, tools, place):
    setting(RECORD)(place)
    ended = run(place, words_of(tools, place, "python"), AMDGPU_EP_TRUST_OPTIONS=value)
    assert not ended.changes, ended.everything()


@pytest.mark.parametrize("way", ["generate", "chat"])
def test_the_command_line_is_trusted(way, tools, place):
    option = f"ep.hip.explain_file={place.target}/explain"
    ended = run(place, [*words_of(tools, place, way), "--option", option], "hello\n/quit\n")
    assert ended.code == 0 and ended.changes == ["+target/explain"], ended.everything()


@pytest.mark.parametrize("way", ["generate", "chat"])
def test_the_environment_does_not_make_a_folder_trusted_for_the_command(way, tools, place):
    """The command knows which options came from the folder, and ignores what the environment allows for others."""
    setting({"backend_library": "{evil}"}, "amdgpu")(place)
    ended = run(place, words_of(tools, place, way), "hello\n/quit\n", AMDGPU_EP_TRUST_OPTIONS="1")
    assert not ended.loads and "backend_library" in ended.errors, ended.everything()


@pytest.mark.parametrize("way", ["generate", "chat", "python", "genai"])
def test_a_valid_folder_runs_without_messages(way, tools, place):
    ended = run(place, words_of(tools, place, way), "hello\n/quit\n")
    assert ended.code == 0 and not ended.harm() and not ended.errors, ended.everything()


def test_genai_shows_refused_options_by_default(tools, place):
    setting(RECORD)(place)
    ended = run(place, words_of(tools, place, "genai"))
    assert "ep.hip.explain_file" in ended.everything(), ended.everything()
