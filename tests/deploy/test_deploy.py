"""The files in `deploy/`: they are valid, they agree with the broker, and their programs accept them."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import penstock
from penstock.cli.main import EXIT_OPERATOR, EXIT_TEMPORARY
from penstock.limits import KAFKA_READ_SECONDS_MAX
from tests.support.commands import Commands
from tests.support.http_live import HttpBroker
from tools.image_steps import FILE, Steps, context_files, steps
from tools.kafka import VERSION as KAFKA_VERSION

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "penstock.json"
UNIT = DEPLOY / "systemd" / "penstock.service"
CONFIGURATIONS = sorted(DEPLOY.rglob("*.toml"))
METRIC = re.compile(r"\b(?:penstock|process)_[a-z_]+\b")
SUFFIXES = ("_bucket", "_count", "_sum")
EXPOSURE_MAX = 20
"""In tenths: `systemd-analyze security` calls up to 2.0 OK."""


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: apt-get install {package}")
    return found


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    ended = subprocess.run(  # noqa: S603
        [*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


# --- Metrics --------------------------------------------------------------------------------------


def expressions() -> Iterator[str]:
    for group in documents(PROMETHEUS / "alerts.yml")[0]["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    board = json.loads(DASHBOARD.read_text())
    yield from (target["expr"] for panel in board["panels"] for target in panel["targets"])
    yield from (each["query"]["query"] for each in board["templating"]["list"])


def test_every_metric_of_alerts_and_dashboard_exists(tmp_path: Path) -> None:
    with HttpBroker(data=tmp_path) as broker:
        text = broker.get("/metrics").body.decode()
    page = (ROOT / "docs" / "http.md").read_text()
    known = set()
    for family in text_string_to_metric_families(text):
        known.add(f"{family.name}_total" if family.type == "counter" else family.name)
        known |= {family.name + suffix for suffix in SUFFIXES if family.type == "histogram"}
    # These are there with an object store only; a test of the page compares them with the code.
    known |= {name for name in METRIC.findall(page) if name.startswith("penstock_tier_")}
    named = {name for each in expressions() for name in METRIC.findall(each)}
    assert len(named) > 30
    assert named <= known, named - known


def test_labels_of_alerts_exist() -> None:
    page = (ROOT / "docs" / "http.md").read_text()
    for group in documents(PROMETHEUS / "alerts.yml")[0]["groups"]:
        for rule in group["rules"]:
            used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
            for label in used - {"instance"}:
                (name, *_) = METRIC.findall(rule["expr"])
                line = next(line for line in page.splitlines() if f"`{name}`" in line)
                assert f"`{label}`" in line, (rule["alert"], label)


def test_alerts_are_valid_and_fire_when_they_should() -> None:
    promtool = program("promtool", "prometheus")
    assert "SUCCESS: 15 rules found" in run(promtool, "check", "rules", PROMETHEUS / "alerts.yml")
    run(promtool, "check", "config", PROMETHEUS / "prometheus.yml")
    assert "SUCCESS" in run(promtool, "test", "rules", "alerts_test.yml", cwd=PROMETHEUS)


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    board = json.loads(DASHBOARD.read_text())
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


# --- Configurations -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.parent.name)
def test_configurations_are_valid(path: Path, commands: Commands, tmp_path: Path) -> None:
    copied = Path(shutil.copy(path, tmp_path))
    (tmp_path / "users.toml").write_text("")
    done = commands.run("serve", "--check", "--config", copied)
    assert done.code == 0, done.err


def test_the_configuration_of_kubernetes_is_valid(commands: Commands, tmp_path: Path) -> None:
    found = {each["kind"]: each for each in documents(DEPLOY / "kubernetes" / "penstock.yaml")}
    text = found["ConfigMap"]["data"]["penstock.toml"]
    (tmp_path / "penstock.toml").write_text(text)
    done = commands.run("serve", "--check", "--config", tmp_path / "penstock.toml")
    assert done.code == 0, done.err
    settings = tomllib.loads(text)
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    urls = [settings["listener"][0]["url"], settings["http"]["address"]]
    assert [*ports.values()] == [
        int(each.rpartition(":")[2]) for each in (*urls, settings["flight"]["address"])
    ]
    assert found["StatefulSet"]["spec"]["replicas"] == 1
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["image"].endswith(f":{penstock.__version__}")
    assert settings["data"]["folder"] in [each["mountPath"] for each in container["volumeMounts"]]


def test_the_compose_file_uses_what_there_is() -> None:
    (composed,) = documents(DEPLOY / "compose.yaml")
    services = composed["services"]
    assert services["kafka"]["image"].endswith(f":{KAFKA_VERSION}")
    build = services["penstock"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == FILE
    for service in services.values():
        assert not service.get("image", "").endswith(":latest")
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            inside = source.startswith("./")
            assert (DEPLOY / source).exists() if inside else source in composed["volumes"]
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:")
    (scraped,) = documents(PROMETHEUS / "prometheus.yml")[0]["scrape_configs"]
    (target,) = scraped["static_configs"][0]["targets"]
    assert target.partition(":")[0] in services
    for path in (DEPLOY / "grafana" / "provisioning").rglob("*.yaml"):
        assert documents(path)


# --- The unit and the image -----------------------------------------------------------------------


def test_the_unit_is_valid_and_little_exposed(tmp_path: Path) -> None:
    analyze = program("systemd-analyze", "systemd")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/penstock/bin/penstock", sys.executable))
    assert not run(analyze, "verify", "--man=no", unit).strip()
    report = run(analyze, "security", "--offline=yes", f"--threshold={EXPOSURE_MAX}", unit)
    assert "Overall exposure level" in report


def test_the_unit_waits_longer_than_the_broker_takes_to_stop() -> None:
    wait = int(re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)[0])
    settings = tomllib.loads((DEPLOY / "systemd" / "penstock.toml").read_text())
    assert wait > settings.get("limits", {}).get("stop_seconds_max", 5)
    assert settings["data"]["folder"] == "/var/lib/penstock"


def test_the_unit_starts_again_as_long_as_kafka_does_not_answer() -> None:
    found = dict(re.findall(r"^([A-Za-z]+)=([\w-]+)$", UNIT.read_text(), re.MULTILINE))
    assert found["Restart"] == "on-failure"
    assert found["RestartPreventExitStatus"] == str(EXIT_OPERATOR) != str(EXIT_TEMPORARY)
    seconds = KAFKA_READ_SECONDS_MAX + int(found["RestartSec"])  # of an attempt, at least
    attempts = int(found["StartLimitIntervalSec"]) / seconds
    assert int(found["StartLimitBurst"]) > attempts, "systemd would give up"


def test_the_image_is_built_in_stages_and_runs_without_root() -> None:
    found = list(steps(FILE.read_text()))
    images = [step.argument.split()[0] for step in found if step.word == "FROM"]
    assert len(images) == 2
    assert len(set(images)) == 1, "wheels fit one version of Python"
    last = [step for step in found if step.stage == 1]
    assert [step.argument for step in last if step.word == "USER"] == ["10001:10001"]
    assert "gcc" not in " ".join(step.argument for step in last)
    installs = [step.argument for step in found if "pip install" in step.argument]
    assert all("--require-hashes" in each or "--no-index" in each for each in installs)
    words = {step.word for step in found}
    assert words <= {
        "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "RUN",
        "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
    }  # fmt: skip


def test_files_of_the_image_get_into_its_build(tmp_path: Path) -> None:
    allowed = context_files((ROOT / ".dockerignore").read_text())
    copied = [
        step.argument.split()[0]
        for step in steps(FILE.read_text())
        if step.word == "COPY" and not step.argument.startswith("--from")
    ]
    assert copied == [".", "deploy/container/penstock.toml"]
    assert copied[1] in allowed
    assert all((ROOT / name).exists() for name in allowed)
    # The steps that copy; `make image-steps` runs the others, too.
    runner = Steps(tmp_path, Path(sys.executable))
    for step in steps(FILE.read_text()):
        if step.word in {"FROM", "COPY"} and not step.argument.startswith("--from"):
            runner.run(step)
    assert (tmp_path / "stage0" / "source" / "tools" / "wheel.py").exists()
    assert not list((tmp_path / "stage0").rglob("*.so"))
    assert (tmp_path / "stage1" / "etc" / "penstock" / "penstock.toml").exists()
