"""A Flink cluster on this machine, from jars alone: a JobManager and two TaskManagers with one slot each.

The jars of Flink come from ``pip download`` of ``apache-flink-libraries``, once, into a cache; Beam's job server lies
beside the project. Where one of them, or Java, is missing, the tests are skipped and say so.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENGINES = Path(os.environ.get("FARSPAN_ENGINES", ROOT.parent / "shared" / "engines"))
JOB_SERVER = ENGINES / "beam-flink-1.19-job-server-2.62.jar"
PACKAGE = "apache-flink-libraries==1.19.3"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "farspan" / "flink-1.19.3"
_PACKAGES = "lang net io nio lang.reflect text time util util.concurrent util.concurrent.atomic util.concurrent.locks"
_OPENS = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _PACKAGES.split()] + [
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
    "--add-exports=java.rmi/sun.rmi.registry=ALL-UNNAMED",
]
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # these programs end before more compilation would pay
_MEMORY = """cpu.cores=1.0 memory.task.heap.size=128mb memory.task.off-heap.size=0b memory.managed.size=64mb
    memory.framework.heap.size=128mb memory.framework.off-heap.size=128mb memory.network.min=64mb
    memory.network.max=64mb memory.jvm-metaspace.size=128mb memory.jvm-overhead.min=100mb
    memory.jvm-overhead.max=100mb memory.process.size=740mb"""


def require_flink() -> Path:
    """The folder of Flink's jars, downloaded at the first call; skips the test where something is missing."""
    if shutil.which("java") is None:
        pytest.skip("Flink needs Java 11 or 17; there is no java here")
    if not JOB_SERVER.exists():
        pytest.skip(f"Beam's job server is not there: {JOB_SERVER}; FARSPAN_ENGINES names its folder")
    if given := os.environ.get("FARSPAN_FLINK_JARS"):
        return Path(given)
    if not CACHE.exists():
        partial = CACHE.with_name(f"{CACHE.name}.{os.getpid()}")
        partial.mkdir(parents=True)
        download = "-m pip download --quiet --no-deps --no-binary=:all: --dest".split()
        done = subprocess.run(
            [sys.executable, *download, partial, PACKAGE], capture_output=True, text=True, check=False
        )
        if done.returncode:
            shutil.rmtree(partial)
            pytest.skip(f"{PACKAGE} cannot be downloaded: {done.stderr.strip().splitlines()[-1]}")
        (archive,) = partial.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            for member in packed:
                if "/deps/lib/" in member.name and member.name.endswith(".jar"):
                    member.name = os.path.basename(member.name)
                    packed.extract(member, partial, filter="data")
        archive.unlink()
        partial.rename(CACHE)
    return CACHE


class Cluster:
    """A running cluster. Meanwhile, Java programs of this process and its children start quickly.

    Attributes:
        processes: name -> process of the JobManager (``jm``), a TaskManager (``tm0``) or the job server.

    Args:
        folder: of logs, and of temporary files.
        address: of the JobManager.
        hosts: for each TaskManager its address, and the words that start a command on its host.
        keeps_classes: Beam's classes are on the class path of JobManager and TaskManagers, which load and compile them
            once; by default they come with each job, as on a cluster of others, and are loaded by each job anew.
    """

    def __init__(
        self,
        folder: Path,
        address: str = "localhost",
        hosts: Sequence[tuple[str, Sequence[str]]] = (("localhost", ()), ("localhost", ())),
        *,
        keeps_classes: bool = False,
    ) -> None:
        self.jars, self.folder, self.address, self.hosts = require_flink(), folder, address, hosts
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.rest = f"{address}:8081"
        self._keeps_classes, self._patch = keeps_classes, pytest.MonkeyPatch()

    def __enter__(self) -> "Cluster":
        self._patch.setenv("JDK_JAVA_OPTIONS", _QUICK_JAVA)
        try:
            self._start("jm", "entrypoint.StandaloneSessionClusterEntrypoint", "localhost", (), "-Xmx400m")
            for number in range(len(self.hosts)):
                self.start_task_manager(number)
            last = time.monotonic() + 180
            while self.ask("/overview").get("taskmanagers") != len(self.hosts):
                if time.monotonic() > last:
                    pytest.fail(f"no cluster after 180 s; see {self.folder}/*.log")
                time.sleep(0.5)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        self._patch.undo()

    def start_task_manager(self, number: int) -> None:
        """Start a TaskManager, or start it again."""
        address, before = self.hosts[number]
        settings = [word for pair in _MEMORY.split() for word in ("-D", f"taskmanager.{pair}")]
        settings += ["-D", f"taskmanager.resource-id=tm{number}-{time.monotonic_ns()}"]
        java = ("-Xmx300m", "-XX:MaxDirectMemorySize=300m")
        self._start(f"tm{number}", "taskexecutor.TaskManagerRunner", address, before, *java, settings=settings)

    def kill_task_manager(self, number: int) -> None:
        """``kill -9``."""
        self.processes[f"tm{number}"].kill()
        self.processes[f"tm{number}"].wait()

    def ask(self, path: str) -> dict:
        try:
            with urllib.request.urlopen(f"http://{self.rest}{path}", timeout=5) as answer:
                return json.loads(answer.read())
        except OSError:
            return {}

    def states(self) -> list[str]:
        """States of all jobs, the youngest last."""
        jobs = self.ask("/jobs/overview").get("jobs", [])
        return [job["state"] for job in sorted(jobs, key=lambda job: job["start-time"])]

    @cached_property
    def job_server(self) -> str:
        """``host:port`` of one of Beam's job servers, for jobs that need none of their own; starts with the first."""
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        command = ["java", "-Xmx300m", "-jar", str(JOB_SERVER), "--flink-master", f"http://{self.rest}"]
        command += ["--artifacts-dir", str(self.folder / "artifacts"), "--job-port", str(port), "--artifact-port", "0"]
        with open(self.folder / "job-server.log", "ab") as log:
            self.processes["job server"] = subprocess.Popen(
                [*command, "--expansion-port", "0"], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        return f"localhost:{port}"

    def flags(self, *, served: bool = False, **environment: object) -> list[str]:
        """Flags of a job on this cluster.

        Args:
            served: the driver submits to ``job_server``, and starts none, which takes seconds.
            environment: variables of the workers.
        """
        variables = {"PYTHON": sys.executable, "ROOT": str(ROOT), **{k: str(v) for k, v in environment.items()}}
        config = {"command": str(ROOT / "tests" / "flink" / "worker.sh"), "env": variables}
        return [
            "--runner=FlinkRunner", f"--flink_master={self.rest}", "--flink_version=1.19", "--shared-folders",
            f"--flink_job_server_jar={JOB_SERVER}", f"--parallelism={len(self.hosts)}", "--worker-timeout=240",
            "--environment_type=PROCESS", f"--environment_config={json.dumps(config)}",
            *([f"--job_endpoint={self.job_server}"] if served else []),
        ]  # fmt: skip

    def _start(
        self, name: str, main: str, host: str, before: Sequence[str], *java: str, settings: Sequence[str] = ()
    ) -> None:
        place = self.folder / name
        (place / "tmp").mkdir(parents=True, exist_ok=True)
        (place / "config.yaml").write_text(self._config(host, place / "tmp"))
        (place / "log4j.properties").write_text(
            "rootLogger.level=INFO\nrootLogger.appenderRef.c.ref=C\nappender.c.name=C\nappender.c.type=CONSOLE\n"
            "appender.c.layout.type=PatternLayout\nappender.c.layout.pattern=%d{HH:mm:ss} %-5p %c{1} %m%n\n"
        )
        command = [*before, "java", *java, *_OPENS, f"-Dlog4j.configurationFile=file:{place}/log4j.properties"]
        beam = f":{JOB_SERVER}" if self._keeps_classes else ""
        command += [
            "-cp",
            f"{self.jars}/*{beam}",
            f"org.apache.flink.runtime.{main}",
            "--configDir",
            str(place),
            *settings,
        ]
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _config(self, host: str, temporary: Path) -> str:
        bind = "localhost" if self.address == "localhost" else "0.0.0.0"
        return f"""\
jobmanager.rpc.address: {self.address}
jobmanager.bind-host: {bind}
jobmanager.memory.process.size: 800m
taskmanager.host: {host}
taskmanager.bind-host: {bind}
taskmanager.numberOfTaskSlots: 1
taskmanager.memory.process.size: 1024m
taskmanager.memory.managed.size: 64m
rest.address: {self.address}
rest.bind-address: {bind}
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 10
restart-strategy.fixed-delay.delay: 1 s
task.cancellation.timeout: 0
heartbeat.interval: 1000
heartbeat.timeout: 10000
classloader.resolve-order: {"parent" if self._keeps_classes else "child"}-first
io.tmp.dirs: {temporary}
"""
