"""cpp/worker/moriio_mode.h: the two modes, as workers spell them."""

from vllm_router._core_testing import moriio_mode_names


def test_modes_have_the_names_that_workers_register():
    assert moriio_mode_names() == ["READ", "WRITE"]
