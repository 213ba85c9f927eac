"""Names of processes: read back, and the life of those on this machine told from the system."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.engine.presence.identity import DRIVER, LAUNCHER, Identity, _started, is_running

words = st.text("abcXYZ019._-", min_size=1, max_size=12)


@given(
    st.builds(
        Identity,
        kind=st.sampled_from([DRIVER, LAUNCHER]),
        host=words,
        pid=st.integers(1, 1 << 22),
        started=st.integers(0, 1 << 40),
        machine=words,
        lease=st.sampled_from([0.5, 1.0, 60.0, 3600.0]),
        nonce=st.text("0123456789abcdef", min_size=8, max_size=8),
    )
)
def test_a_name_says_all(identity):
    assert Identity.parse(identity.name) == identity
    assert os.path.basename(identity.name) == identity.name
    assert Identity.parse(f"{identity.name}.idle") is None


@pytest.mark.parametrize("name", ["", "driver", "driver~host~1~2~m~60", "driver~host~one~2~m~60~n", "a~b~1~2~c~d~e"])
def test_other_names_are_none(name):
    assert Identity.parse(name) is None


def test_this_process_lives_and_each_identity_is_another():
    own = Identity.own(DRIVER, 60)
    assert (own.pid, own.started) == (os.getpid(), _started(os.getpid()))
    assert not own.killed()
    assert own.nonce != Identity.own(DRIVER, 60).nonce
    assert str(own) == f"process {os.getpid()} on {own.host}"
    assert replace(own, started=own.started - 1).killed(), "its number belongs to another process now"
    assert not replace(own, started=own.started - 1, machine="elsewhere").killed()
    assert not replace(own, started=0).killed(), "it could not tell its start"


def test_a_process_that_ended_was_killed():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = replace(Identity.own(LAUNCHER, 60), pid=child.pid, started=_started(child.pid))
    assert not identity.killed()
    assert is_running(child.pid)
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it ends, and nobody asks for its status
    assert identity.killed()
    assert not is_running(child.pid)
    child.wait()
    assert identity.killed()
    assert not is_running(child.pid)
