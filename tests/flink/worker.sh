#!/bin/sh
# The command of a PROCESS environment, which takes no arguments of its own; PYTHON and ROOT come with the environment.
cd "$ROOT" && exec "$PYTHON" -P -c 'import sys; sys.path.insert(0, "'"$ROOT"'"); from tests.flink.worker import main; main()' "$@"
