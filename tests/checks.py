# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All checks of this repository, in parts. scripts/test makes the virtual environment and calls this."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import types
import typing as t
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
VENV = ROOT / ".venv"
VENV_OLD = ROOT / ".venv-2.19"
OLD_CORE = "ansible-core==2.19.14"
NAMESPACE = ("sparkgate", "blackwell")
# ansible-test bootstraps its virtual environments with exactly this pip.
ANSIBLE_TEST_PIP = "25.2"


@dataclasses.dataclass
class Tally:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: Tally) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


@dataclasses.dataclass
class Done:
    rc: int
    output: str
    seconds: float


class Part:
    """What a part did, check by check."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tally = Tally()
        self.logs = BUILD / "test" / name
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)

    def execute(
        self,
        title: str,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        live: bool = False,
        limit: float = 900,
    ) -> Done:
        """Run a command into a log file (live: also onto the terminal), for at most `limit` seconds."""
        print(f"  {title} ...", flush=True)
        log = self.logs / (re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") + ".log")
        started = time.monotonic()
        command = [str(word) for word in argv]
        with log.open("w+") as out:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=environment(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if live else out,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            running.append(process)
            try:
                if live:
                    # A reader of its own, so that the limit holds for a silent command too.
                    tee = subprocess.Popen(["tee", str(log)], stdin=process.stdout)
                    rc = process.wait(timeout=limit)
                    # A daemon that the command left behind may hold the pipe open.
                    try:
                        tee.wait(timeout=10)
                    except subprocess.TimeoutExpired:
                        tee.kill()
                else:
                    rc = process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                end(process)
                rc = 124
                print(f"  {title}: no end within {limit:.0f} s, ended", flush=True)
            finally:
                running.remove(process)
        return Done(rc, log.read_text(errors="replace"), time.monotonic() - started)

    def check(self, title: str, argv: Sequence[str | Path], **options: t.Any) -> bool:
        """One command, one check."""
        done = self.execute(title, argv, **options)
        return self.verdict(title, done.rc == 0, done, "" if options.get("live") else done.output)

    def verdict(self, title: str, good: bool, done: Done | None = None, output: str = "") -> bool:
        seconds = f" ({done.seconds:.1f} s)" if done else ""
        if good:
            self.tally.passed += 1
            print(f"  {title}: ok{seconds}", flush=True)
        else:
            self.tally.failed += 1
            self.show(output)
            print(f"  {title}: FAILED{seconds}", flush=True)
        return good

    def show(self, output: str, most: int = 150) -> None:
        lines = output.rstrip().splitlines()
        if len(lines) > most:
            print(f"    ({len(lines) - most} lines before these are in {self.logs.relative_to(ROOT)}/)")
        for line in lines[-most:]:
            print(f"    {line}")

    def skip(self, title: str, why: str) -> None:
        self.tally.skipped += 1
        print(f"  {title}: skipped, {why}", flush=True)

    def pytest(self, title: str, python: Path, arguments: Sequence[str | Path], **options: t.Any) -> None:
        """Count the tests that pytest ran."""
        report = self.logs / f"{re.sub(r'[^a-z0-9]+', '-', title.lower())}.xml"
        done = self.execute(title, [python, "-m", "pytest", "-q", f"--junitxml={report}", *arguments], **options)
        counts = Tally()
        if report.exists():
            for suite in ElementTree.parse(report).getroot().iter("testsuite"):
                number = {key: int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
                counts.failed += number["failures"] + number["errors"]
                counts.skipped += number["skipped"]
                counts.passed += number["tests"] - number["failures"] - number["errors"] - number["skipped"]
        if done.rc != 0 and counts.failed == 0:
            counts.failed = 1
        self.tally.add(counts)
        if counts.failed and not options.get("live"):
            self.show(done.output)
        print(f"  {title}: {counts} ({done.seconds:.1f} s)", flush=True)


running: list[subprocess.Popen[str]] = []


def end(process: subprocess.Popen[str]) -> None:
    """End a command and what it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=20)
            return
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            return


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "MOLECULE_"))}
    env["PATH"] = f"{VENV / 'bin'}{os.pathsep}{env.get('PATH', os.defpath)}"
    env["VIRTUAL_ENV"] = str(VENV)
    env["ANSIBLE_CONFIG"] = str(ROOT / "ansible.cfg")
    env["ANSIBLE_NOCOLOR"] = "1"
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    env["PYTHONUNBUFFERED"] = "1"
    env.update(extra or {})
    return env


def no_configuration() -> str:
    """A configuration file for Ansible that says nothing, in place of the user's."""
    path = BUILD / "none.cfg"
    path.touch()
    return str(path)


def interpreter_directories() -> list[Path]:
    """Directories with real Python interpreters. A shim that only forwards to one confuses ansible-test."""
    found = [Path(word) for word in os.environ.get("PATH", "").split(os.pathsep) if word]
    found += sorted(Path.home().glob(".pyenv/versions/3.*/bin"), reverse=True)
    found += [Path("/usr/local/bin"), Path("/usr/bin")]
    return [path for path in dict.fromkeys(found) if "shims" not in path.parts and VENV not in path.parents]


def interpreter(*versions: str) -> Path | None:
    """The first of the wished Python versions that is here and runs."""
    for version in versions:
        for directory in interpreter_directories():
            path = directory / f"python{version}"
            if (
                path.exists()
                and subprocess.run([str(path), "-c", "import venv"], capture_output=True, check=False).returncode == 0
            ):
                return path
    return None


def provide(part: Part, venv: Path, python: Path, requirements: Sequence[str]) -> bool:
    """Make a virtual environment hold exactly the wished requirements; quick where it does already."""
    files = [ROOT / word for word in requirements if (ROOT / word).is_file()]
    digest = hashlib.sha256(b"\0".join([*(word.encode() for word in requirements), *(f.read_bytes() for f in files)]))
    stamp = venv / ".requirements-of-tests"
    if stamp.exists() and stamp.read_text() == digest.hexdigest():
        return True
    if not (venv / "bin" / "python").exists():
        done = part.execute(f"make {venv.name}", [python, "-m", "venv", venv])
        if done.rc != 0:
            return part.verdict(f"make {venv.name}", False, done, done.output)
    words = [word for name in requirements for word in (["-r", name] if (ROOT / name).is_file() else [name])]
    done = part.execute(f"install into {venv.name}", [venv / "bin" / "python", "-m", "pip", "install", "-q", *words])
    if done.rc != 0:
        return part.verdict(f"install into {venv.name}", False, done, done.output)
    stamp.write_text(digest.hexdigest())
    return True


def tracked() -> list[Path]:
    """The files of the repository: committed, or new and not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = [Path(os.fsdecode(name)) for name in listed.stdout.split(b"\0") if name]
    return [name for name in dict.fromkeys(names) if (ROOT / name).exists()]


def system_tool(part: Part, name: str) -> bool:
    """Whether a tool of the system is here; Debian's package is installed where that is possible."""
    if shutil.which(name) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        part.execute(f"install {name}", ["apt-get", "install", "-y", "--no-install-recommends", name], limit=300)
    return shutil.which(name) is not None


# --- the parts -------------------------------------------------------------------------------------------------------


def part_lint(part: Part) -> None:
    collections = {"ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections")}
    here = ROOT / "collections" / "ansible_collections" / Path(*NAMESPACE)
    part.check("ruff check", ["ruff", "check", "--output-format", "concise", "."])
    part.check("ruff format", ["ruff", "format", "--check", "."])
    # Through the link, so that every file has one module name, its full one.
    folders = [here / name for name in ("plugins", "tests", "lab") if list((ROOT / name).rglob("*.py"))]
    part.check("mypy", ["mypy", *(folder.relative_to(ROOT) for folder in folders)])
    part.check("yamllint", ["yamllint", "--strict", "."])
    part.check("ansible-lint", ["ansible-lint", "--offline", "--nocolor"], env=collections)
    part.check("antsibull-changelog", ["antsibull-changelog", "lint"])
    scripts = [
        str(path)
        for path in tracked()
        if path.suffix in ("", ".sh")
        and (ROOT / path).is_file()
        and re.match(rb"#!.*\b(ba|da)?sh\b", (ROOT / path).read_bytes()[:80])
    ]
    if system_tool(part, "shellcheck"):
        part.check("shellcheck", ["shellcheck", "--external-sources", *scripts])
    else:
        part.skip("shellcheck", "it is not installed")
    part.pytest("house rules", VENV / "bin" / "python", ["tests/lint"])


def part_unit_old(part: Part) -> None:
    python = interpreter("3.11", "3.12", "3.13")
    if python is None:
        part.skip("ansible-core 2.19", "no Python 3.11, 3.12 or 3.13 on this machine")
        return
    if provide(part, VENV_OLD, python, [OLD_CORE, "requirements-test.txt"]):
        part.pytest("unit tests on ansible-core 2.19", VENV_OLD / "bin" / "python", ["tests/unit"])


def part_unit_newest(part: Part) -> None:
    core = subprocess.run(
        [
            str(VENV / "bin" / "python"),
            "-c",
            "import ansible.release as r, sys; print(r.__version__, sys.version_info[1])",
        ],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    ).stdout.split()
    if not core or core[0].startswith("2.19."):
        if interpreter("3.13"):
            # The environment was made with an older interpreter although a newer one is here.
            part.verdict(
                "the newest ansible-core", False, output="Python 3.13 is here, but .venv does not use it; remove .venv"
            )
            return
        part.skip("the newest ansible-core", "it needs Python 3.12 or newer, which this machine lacks")
        return
    title = f"unit tests on ansible-core {core[0]}, Python 3.{core[1]}"
    part.pytest(title, VENV / "bin" / "python", ["tests/unit"])


def prime_ansible_test(part: Part, home: Path) -> bool:
    """Give ansible-test the pip that it would fetch from its own site, from the package index that pip uses here."""
    cache = home / ".ansible" / "test" / "cache"
    script = cache / f"get_pip_{ANSIBLE_TEST_PIP.replace('.', '_')}.py"
    if script.exists():
        return True
    cache.mkdir(parents=True, exist_ok=True)
    argv: list[str | Path] = [
        VENV / "bin" / "python",
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        f"pip=={ANSIBLE_TEST_PIP}",
        "-d",
        cache,
    ]
    done = part.execute("fetch pip for ansible-test", argv)
    wheels = list(cache.glob(f"pip-{ANSIBLE_TEST_PIP}-*.whl"))
    if done.rc != 0 or not wheels:
        return part.verdict("fetch pip for ansible-test", False, done, done.output)
    lines = [
        "import runpy, sys",
        f"wheel = {str(wheels[0])!r}",
        "sys.path.insert(0, wheel)",
        "sys.argv = ['pip', 'install', '--no-index', wheel]",
        "runpy.run_module('pip', run_name='__main__', alter_sys=True)",
    ]
    script.write_text("\n".join(lines) + "\n")
    return True


def part_sanity(part: Part) -> None:
    # ansible-test insists on a real folder of that name, and refuses the link in collections/.
    copy = BUILD / "ansible_collections" / Path(*NAMESPACE)
    shutil.rmtree(copy, ignore_errors=True)
    for name in tracked():
        if name.parts[0] == "collections":
            continue
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    subprocess.run(["git", "init", "-q"], cwd=copy, check=True)
    subprocess.run(["git", "add", "-A"], cwd=copy, check=True)
    home = BUILD / "home"
    home.mkdir(exist_ok=True)
    if not prime_ansible_test(part, home):
        return
    real = [str(path) for path in interpreter_directories() if list(path.glob("python3.*"))]
    path = os.pathsep.join(dict.fromkeys([str(VENV / "bin"), *real, "/usr/bin", "/bin"]))
    env = {
        "HOME": str(home),
        "ANSIBLE_HOME": str(home / ".ansible"),
        "PATH": path,
        "ANSIBLE_CONFIG": no_configuration(),
    }
    part.check(
        "ansible-test sanity",
        ["ansible-test", "sanity", "--requirements", "--color", "no"],
        cwd=copy,
        env=env,
        limit=900,
    )


def part_build(part: Part) -> None:
    dist, empty, installed = BUILD / "dist", BUILD / "empty", BUILD / "installed"
    for path in (dist, empty, installed):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
    # Away from the checkout and its ansible.cfg, as a user of the installed collection is.
    env = {
        "ANSIBLE_CONFIG": no_configuration(),
        "ANSIBLE_COLLECTIONS_PATH": str(installed),
        "ANSIBLE_HOME": str(BUILD / "home"),
    }
    if not part.check("build", ["ansible-galaxy", "collection", "build", "--output-path", dist, ROOT], env=env):
        return
    artifact = next(dist.glob("*.tar.gz"))
    with tarfile.open(artifact) as archive:
        names = archive.getnames()
    stray = [
        name
        for name in names
        if name.split("/")[0] in ("collections", "build") or name.startswith((".venv", ".lab", ".git/"))
    ]
    part.verdict("the artifact holds the collection only", not stray, output="\n".join(stray[:20]))
    install: list[str | Path] = ["ansible-galaxy", "collection", "install", "--offline", artifact, "-p", installed]
    if not part.check("install into an empty path", install, env=env, cwd=empty):
        return
    name = ".".join(NAMESPACE)
    part.check("document a module", ["ansible-doc", "-t", "module", f"{name}.recon_info"], env=env, cwd=empty)
    inventory = ["-i", str(ROOT / "inventory")]
    for playbook in ("deploy_qwen", "status", "stop"):
        argv = ["ansible-playbook", f"{name}.{playbook}", "--syntax-check", *inventory]
        part.check(f"playbook {name}.{playbook}", argv, env=env, cwd=empty)
    # Filters, lookups and their tables come from the artifact too.
    argv = ["ansible-playbook", f"{name}.deploy_qwen", *inventory]
    done = part.execute("run it with the shipped inventory", argv, env=env, cwd=empty)
    refused = done.rc != 0 and "sparkgate_fabric_address is 198.51.100.111" in done.output
    part.verdict("the installed playbook refuses the shipped inventory", refused, done, done.output)
    profile = "{{ lookup('sparkgate.blackwell.profile', 'qwen3.5-122b-a10b-fp8').model.id }}"
    argv = ["ansible", "localhost", "-m", "ansible.builtin.debug", "-a", f"msg={profile}"]
    done = part.execute("load a profile", argv, env=env, cwd=empty)
    part.verdict("the artifact holds the profiles", "Qwen/Qwen3.5-122B-A10B-FP8" in done.output, done, done.output)
    part.check(
        "deploy_qwen.yml from the checkout", ["ansible-playbook", "deploy_qwen.yml", "--syntax-check", *inventory]
    )


def part_demo(part: Part) -> None:
    if not part.check("demo", ["scripts/demo"], live=True, limit=1500):
        return
    done = part.execute("demo again", ["scripts/demo"], live=True, limit=600)
    counts = [int(number) for number in re.findall(r"\bchanged=(\d+)", done.output)]
    quiet = bool(counts) and sum(counts) == 0 and "nothing changed" in done.output.lower()
    part.verdict("demo again", done.rc == 0, done)
    part.verdict("the second run changed nothing", quiet, output=f"changed: {counts}")


def deployed(part: Part) -> bool:
    """Whether the lab is up and serves; scripts/demo provides that where it does not."""
    if demo_failed:
        return part.verdict(part.name, False, output="scripts/demo failed, so that there is no deployment to test")
    if (ROOT / "lab" / "inventory" / "hosts.yml").exists():
        engine = ["ansible", "sparkgate[0]", "-i", "lab/inventory", "-b", "-m", "ansible.builtin.command"]
        done = part.execute("look for the deployment", [*engine, "-a", "systemctl is-active sparkgate-engine.service"])
        if done.rc == 0:
            return True
    done = part.execute("demo, for the deployment", ["scripts/demo"], live=True, limit=1500)
    return done.rc == 0 or part.verdict("demo, for the deployment", False, done)


def part_integration(part: Part) -> None:
    if deployed(part):
        part.pytest("integration tests", VENV / "bin" / "python", ["-v", "tests/integration"], live=True, limit=1200)


def part_molecule(part: Part) -> None:
    if not deployed(part):
        return
    # The default scenario owns create and destroy; here the lab is up already, and goes in a part of its own.
    env = {"SPARKGATE_KEEP_LAB": "1", "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections")}
    for scenario in sorted(path.parent.name for path in (ROOT / "molecule").glob("*/molecule.yml")):
        if scenario != "default":
            argv = ["molecule", "test", "--no-command-borders", "-s", scenario]
            part.check(f"molecule {scenario}", argv, env=env, live=True, limit=900)


def part_down(part: Part) -> None:
    if not purge:
        root = [] if os.geteuid() == 0 else ["sudo"]
        part.check("lab down", [*root, "lab/down"], live=True, limit=300)
        print("  images stay for the next time; scripts/demo --down removes them too")
        return
    if part.check("demo --down", ["scripts/demo", "--down"], live=True, limit=300):
        left = [path.name for path in Path("/sys/class/net").glob("sg-*")]
        left += [path for path in ("/var/lib/sparkgate-lab", "/run/sparkgate-lab/docker.sock") if Path(path).exists()]
        part.verdict("nothing is left", not left, output="\n".join(left))


PARTS: dict[str, tuple[Callable[[Part], None], str]] = {
    "lint": (part_lint, "ruff, mypy, yamllint, ansible-lint, shellcheck, changelog, house rules"),
    "unit-2.19": (part_unit_old, "unit tests on ansible-core 2.19"),
    "unit-newest": (part_unit_newest, "unit tests on the newest ansible-core"),
    "sanity": (part_sanity, "ansible-test sanity"),
    "build": (part_build, "collection build, installation into an empty path"),
    "demo": (part_demo, "scripts/demo twice: the whole job, then nothing changes"),
    "integration": (part_integration, "behaviour on the lab's nodes, failures above all"),
    "molecule": (part_molecule, "Molecule's scenarios on the lab's nodes"),
    "down": (part_down, "remove the lab"),
}
LAB_PARTS = ("demo", "integration", "molecule")
demo_failed = False
purge = False


class Beside:
    """The parts that need no lab, in a process of their own beside those that do and mostly wait for it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.log = BUILD / "test" / "beside.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, __file__, *(word for name in names for word in ("--part", name))]
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, text=True, start_new_session=True
            )
        running.append(self.process)
        print(f"\n{', '.join(names)}: they run beside the others, and are shown at the end", flush=True)

    def result(self) -> tuple[Tally, list[str]]:
        """Wait for its end and show it; return what it counted and how long each part took."""
        self.process.wait()
        running.remove(self.process)
        text = self.log.read_text(errors="replace")
        counts = re.fullmatch(r"(\d+) passed, (\d+) failed, (\d+) skipped", text.rstrip().rpartition("\n")[2])
        if counts is None:
            print(text, flush=True)
            return Tally(failed=1), []
        # Without its own closing lines, which are counted into those of the whole run.
        print(text[: text.rfind("\n\n", 0, text.rfind("\n\n"))], flush=True)
        return Tally(*map(int, counts.groups())), re.findall(r"^=== (\S+ +[\d.]+ s .*)$", text, re.MULTILINE)


def interrupted(number: int, frame: types.FrameType | None) -> t.NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    global demo_failed, purge
    parser = argparse.ArgumentParser(prog="scripts/test", description="Run the checks of this repository.")
    parser.add_argument(
        "--part", action="append", choices=list(PARTS), metavar="NAME", help="run this part only (may be repeated)"
    )
    parser.add_argument("--list", action="store_true", help="list the parts and end")
    parser.add_argument("--keep", action="store_true", help="leave the lab up")
    parser.add_argument("--purge", action="store_true", help="remove all that the lab made, images and engine included")
    arguments = parser.parse_args()
    if arguments.list:
        for name, (_run, what) in PARTS.items():
            print(f"{name:<12} {what}")
        return 0
    purge = arguments.purge
    wanted = [name for name in PARTS if not arguments.part or name in arguments.part]
    if arguments.keep:
        wanted = [name for name in wanted if name != "down"]
    elif arguments.part and any(name in LAB_PARTS for name in wanted) and "down" not in wanted:
        wanted.append("down")
    signal.signal(signal.SIGTERM, interrupted)

    total = Tally()
    durations: list[str] = []
    pending = list(wanted)
    quiet = [name for name in wanted if name not in (*LAB_PARTS, "down")]
    beside = None
    if quiet and len(quiet) < len(wanted):
        beside = Beside(quiet)
        pending = [name for name in wanted if name not in quiet]
    try:
        while pending:
            name = pending.pop(0)
            print(f"\n=== {name}: {PARTS[name][1]}", flush=True)
            started = time.monotonic()
            part = Part(name)
            try:
                PARTS[name][0](part)
            except (OSError, subprocess.SubprocessError) as exc:
                part.verdict(name, False, output=f"{type(exc).__name__}: {exc}")
            if name == "demo" and part.tally.failed:
                demo_failed = True
            total.add(part.tally)
            durations.append(f"{name:<12} {time.monotonic() - started:7.1f} s  {part.tally}")
            print(f"=== {durations[-1]}", flush=True)
        if beside:
            counted, lasted = beside.result()
            total.add(counted)
            durations = lasted + durations
    except KeyboardInterrupt:
        for process in running:
            end(process)
        total.failed += 1
        print("\ninterrupted", flush=True)
        if "down" in pending and any(name in LAB_PARTS for name in wanted):
            part_down(Part("down"))
    print("\n" + "\n".join(durations) + "\n")
    print(total, flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
