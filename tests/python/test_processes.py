"""Child processes: spawned, or forked from a process that has registered the library."""
import multiprocessing

import onnxruntime as ort
import pytest
from support import EP, LIBRARY, ON_HOST, affine, affine_model, close, devices, registered, sample, session_on

SECONDS = 120


def run_one(chosen):
    session = session_on(chosen[:1], affine_model())
    close(session.run(None, {"x": sample()})[0], affine(sample()))


def register_and_run():
    """Runs in a child that inherits no registration from its parent."""
    ort.register_execution_provider_library(EP, LIBRARY)
    run_one(devices())
    ort.unregister_execution_provider_library(EP)


def list_and_run():
    """Runs in a child that inherits its parent's registration."""
    assert devices()
    run_one(devices())


def in_children(method, work, count=1):
    """Runs `work` in `count` processes at once; all must succeed in time."""
    context = multiprocessing.get_context(method)
    children = [context.Process(target=work) for _ in range(count)]
    for child in children:
        child.start()
    for child in children:
        child.join(SECONDS)
        assert child.exitcode is not None, "the child hangs"
    assert [child.exitcode for child in children] == [0] * count


def test_spawned_processes_register_for_themselves():
    with registered() as found:
        run_one(found)
        in_children("spawn", register_and_run, count=2)
        run_one(found)


def test_a_child_forked_before_registration_may_register():
    in_children("fork", register_and_run, count=2)
    with registered() as found:
        run_one(found)


@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
def test_a_child_forked_after_registration_runs_on_the_host_device(used):
    if not ON_HOST:
        pytest.skip("the driver of a GPU does not survive a fork")
    with registered() as found:
        if used:
            run_one(found)
        in_children("fork", list_and_run, count=2)
        run_one(found)
