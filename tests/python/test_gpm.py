"""holdfast bench gpm-*: what is run, written, drawn and printed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import holdfast
from conftest import Answer, Run
from holdfast_bench import gpm
from holdfast_bench.gpm.bounds import link_bound, on_optane

HEAD = {
    "backend": "cpu",
    "commit": "0",
    "medium": "dram",
    "machine": {"device": "none", "processor": "a processor", "cores": 2},
}


def write(folder: Path, name: str, lines: list[dict[str, object]], **head: object) -> None:
    folder.mkdir(exist_ok=True)
    backend = {**HEAD, **head}["backend"]
    text = json.dumps({**HEAD, **head, "results": lines})
    (folder / f"{name}-{backend}.json").write_text(text)


def mode(workload: str, name: str, cost: float, **more: object) -> dict[str, object]:
    return {
        "benchmark": "gpm_modes",
        "workload": workload,
        "mode": name,
        "input": "generated: 5 batches of 0 GETs and 1000 SETs on 5000 keys",
        "cpu_threads": 4,
        "cost_seconds": cost,
        "bytes_per_step": 4_000_000,
        "size": "paper",
        **more,
    }


def fake(folder: Path, name: str, line: str) -> Path:
    """Makes a benchmark program that prints a line."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{line}'\necho \"$@\" >> {folder}/{name}.called\n")
    program.chmod(0o755)
    return program


def test_figures_of_results(tmp_path: Path) -> None:
    modes = ("cap-fs", "cap-mm", "gpufs", "ndp", "gpm", "eadr", "cap-eadr", "cpu")
    lines = [mode(name, m, 0.001 * (i + 1)) for name in gpm.ALL for i, m in enumerate(modes)]
    write(tmp_path, "gpm_modes_paper", lines)
    for name in ("gpm-fig1a", "gpm-fig1b", "gpm-fig9", "gpm-fig10", "gpm-fig12"):
        path = tmp_path / f"{name}.svg"
        assert gpm.figures.draw(name, gpm.Results(tmp_path), path), name
        text = path.read_text()
        assert "CPU backend, no GPU" in text  # where it was measured is part of the figure
        assert ("projection" in text) == (name == "gpm-fig10")
    assert not gpm.figures.draw("gpm-fig3", gpm.Results(tmp_path), tmp_path / "3.svg")
    assert not (tmp_path / "3.svg").exists()


def test_figures_are_the_same_from_the_same_results(tmp_path: Path) -> None:
    write(tmp_path, "gpm_modes_paper", [mode("bfs", m, 0.1) for m in ("cap-fs", "gpm")])
    pictures = []
    for name in ("a.svg", "b.svg"):
        gpm.figures.draw("gpm-fig9", gpm.Results(tmp_path), tmp_path / name)
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0] == pictures[1]


def test_the_gpu_comes_first(tmp_path: Path) -> None:
    write(tmp_path, "gpm_modes_paper", [mode("bfs", "gpm", 1.0)])
    gpu = {"device": "a GPU", "processor": "p", "cores": 1}
    write(tmp_path, "gpm_modes_paper", [mode("bfs", "gpm", 2.0)], backend="cuda", machine=gpu)
    assert gpm.Results(tmp_path).where("paper") == "a GPU"
    assert gpm.Results(tmp_path).modes("paper")["bfs"]["gpm"]["cost_seconds"] == 2.0
    assert gpm.Results(tmp_path, ("cpu",)).modes("paper")["bfs"]["gpm"]["cost_seconds"] == 1.0


def test_damaged_results_are_named(tmp_path: Path) -> None:
    (tmp_path / "gpm_modes_paper-cpu.json").write_text("[")
    with pytest.raises(holdfast.Error, match=r"gpm_modes_paper-cpu\.json"):
        gpm.Results(tmp_path).modes("paper")


def test_link_bounds() -> None:
    writes = link_bound(mode("srad", "gpm", 1.0), 4.0)
    assert (writes.written, writes.read) == (4e6, 0)
    assert writes.seconds == pytest.approx(1e-3)
    # Reads of gpKVS: a bucket an operation, of the input's batches.
    small = link_bound(mode("gpkvs", "gpm", 1.0, bytes_per_step=1), 1.0)
    assert small.read == 128 * 1000
    assert small.at_most
    assert small.seconds == pytest.approx(128e-6)
    assert link_bound(mode("gpkvs", "cap-mm", 1.0), 1.0).read == 0
    assert link_bound(mode("gpkvs", "gpm", 1.0, cache="on"), 1.0).read == 0
    # What the run itself told comes before the input's words.
    facts = {"cache": "off", "gets": "95", "sets": "5"}
    assert link_bound(mode("gpkvs", "gpm", 1.0, facts=facts), 1.0).read == 128 * 100
    facts["cache"] = "on"
    assert link_bound(mode("gpkvs", "gpm", 1.0, facts=facts), 1.0).read == 0
    assert gpm.tables.sets_of(mode("gpkvs", "gpm", 1.0, facts=facts)) == 5
    assert gpm.tables.sets_of(mode("gpkvs", "gpm", 1.0)) == 1000


def test_projection_never_beats_what_was_measured() -> None:
    slow = mode("srad", "gpm", 1.0)
    assert on_optane(slow) == 1.0
    fast = mode("gpkvs", "gpm", 1e-9)
    assert on_optane(fast) == pytest.approx(4e6 / 0.72e9)  # random stores
    assert on_optane(mode("gpkvs", "cap-mm", 1e-9)) == pytest.approx(4e6 / 12.5e9)
    # The coalesced log's entries are streams.
    logged = mode("gpkvs", "gpm", 1e-9, streamed_bytes_per_step=3e6)
    assert on_optane(logged) == pytest.approx(1e6 / 0.72e9 + 3e6 / 12.5e9)


def row_of(table: str, title: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {title} |")]
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_the_best_rival_counts(tmp_path: Path) -> None:
    costs = {"cap-fs": 1.0, "cap-mm": 0.5, "ndp": 0.2, "gpm": 0.1, "eadr": 0.01, "cap-eadr": 0.02}
    write(tmp_path, "gpm_modes_paper", [mode("gpkvs", m, cost) for m, cost in costs.items()])
    results = gpm.Results(tmp_path)
    table = gpm.tables.fig9(results, "paper")
    # A projection is no rival, and what was not measured is said.
    assert row_of(table, "gpKVS")[-4:-2] == ["2 (GPM-NDP)", "5"]
    assert "CAP-delta for gpKVS" in table
    assert "not been measured" in gpm.tables.delta(results)

    # A run of its own, with another machine's times: both sides of a ratio are of one run.
    costs = {"cap-fs": 4.0, "cap-mm": 2.0, "ndp": 1.0, "cap-delta": 0.5, "cap-delta-raw": 0.6,
             "cpu": 3.0, "gpm": 0.4}  # fmt: skip
    write(tmp_path, "gpm_delta_paper", [mode("gpkvs", m, cost) for m, cost in costs.items()])
    results = gpm.Results(tmp_path)
    table = gpm.tables.fig9(results, "paper")
    header = [cell.strip() for cell in table.splitlines()[0].split("|")[1:-1]]
    cells = dict(zip(header, row_of(table, "gpKVS"), strict=True))
    assert (cells["CAP-mm"], cells["CAP-delta"], cells["CAP-delta-raw"]) == ("2", "8", "6.67")
    assert cells["GPM over the best rival of the run"] == "1.25 (CAP-delta)"
    assert cells["GPM over CAP-mm, the paper's CAP"] == "5"
    assert "CAP-delta for" not in table
    assert row_of(gpm.tables.fig10(results, "paper"), "gpKVS")[2] == "8"
    assert row_of(gpm.tables.delta(results), "gpKVS")[-3:] == ["1.25", "1.25 (CAP-delta)", "5"]


def test_results_of_another_backend_stay_apart(tmp_path: Path) -> None:
    gpu = {"device": "a GPU", "processor": "p", "cores": 1}
    lines = [mode("gpkvs", "cap-mm", 3.0), mode("gpkvs", "gpm", 1.0)]
    write(tmp_path, "gpm_modes_paper", lines, backend="cuda", machine=gpu)
    write(tmp_path, "gpm_delta_paper", [mode("gpkvs", m, 0.1) for m in ("cap-delta", "gpm")])
    table = gpm.tables.fig9(gpm.Results(tmp_path), "paper")
    assert "3 (CAP-mm)" in row_of(table, "gpKVS")


def test_deltas_are_measured_where_changes_are_gathered(run: Run, tmp_path: Path) -> None:
    answer = run("bench", "gpm-delta", "--only", "gpdb_update,gpkvs", "--size", "test", "--results",
                 tmp_path, "--cpu-threads", "1,2", "--modes", "cap-mm,cap-delta,gpm")  # fmt: skip
    assert answer.status == 0, answer.err
    lines = json.loads((tmp_path / "gpm_delta_test-cpu.json").read_text())["results"]
    assert [line["mode"] for line in lines] == ["cap-mm", "cap-delta", "gpm"] * 2
    assert all(line["verified"] for line in lines)
    assert not (tmp_path / "gpm_modes_test-cpu.json").exists()
    assert "| gpDB (U) | test |" in answer.out
    answer = run("bench", "gpm-fig10", "--only", "prefix_sum", "--size", "test", "--results",
                 tmp_path, "--cpu-threads", "1", "--modes", "cap-mm,cap-delta,gpm")  # fmt: skip
    assert answer.status == 0, answer.err
    assert set(gpm.Results(tmp_path, ("cpu",)).modes("test")["prefix_sum"]) == {"cap-mm", "gpm"}


def test_rivals_are_measured_in_every_form(run: Run, tmp_path: Path) -> None:
    arguments = ("bench", "gpm-rivals", "--size", "test", "--results", tmp_path, "--modes",
                 "cap-delta,cap-log,cpu,gpm", "--cpu-threads", "1,2")  # fmt: skip
    assert "have not been measured" in gpm.tables.rivals(gpm.Results(tmp_path))
    answer = run(*arguments, "--only", "gpkvs,bfs,hotspot")
    assert answer.status == 0, answer.err
    lines = json.loads((tmp_path / "gpm_rivals_test-cpu.json").read_text())["results"]
    measured: dict[str, set[str]] = {}
    for line in lines:
        measured.setdefault(line["workload"], set()).add(line["mode"])
        assert line["verified"]
    assert measured == {
        "gpkvs": {"cap-delta", "cap-log", "cpu", "gpm"},
        "gpkvs_device": {"cap-delta", "cap-log", "gpm"},
        "gpkvs_log": {"gpm"},
        "gpkvs_log_device": {"gpm"},
        "bfs": {"cap-delta", "cpu", "gpm"},
        "bfs_steps": {"cap-delta", "cpu", "gpm"},
        "hotspot": {"cpu", "gpm"},
        "hotspot_engine": {"cpu", "gpm"},
    }
    by = {(line["workload"], line["mode"]): line for line in lines}
    assert by["gpkvs", "cap-delta"]["changes"] in ("gathered", "sorted")
    assert by["gpkvs", "cap-delta"]["cpu_threads"] in (1, 2)
    assert by["gpkvs_device", "cap-log"]["facts"]["input"] == "device"
    assert by["gpkvs", "gpm"]["streamed_bytes_per_step"] > 0
    assert by["bfs_steps", "cap-delta"]["publish"] == "step"
    assert by["hotspot_engine", "gpm"]["facts"]["checkpoint"] == "engine"
    for only, more in (("lenet_engine", ()), ("cfd", ("--no-variants",))):
        alone = tmp_path / only
        answer_alone = run("bench", "gpm-rivals", "--size", "test", "--results", alone, "--modes",
                           "gpm", "--only", only, *more)  # fmt: skip
        assert answer_alone.status == 0, answer_alone.err
        lines = json.loads((alone / "gpm_rivals_test-cpu.json").read_text())["results"]
        assert [line["workload"] for line in lines] == [only]
    results = gpm.Results(tmp_path, ("cpu",))
    assert len(row_of(gpm.tables.rivals(results), "gpKVS (input in device memory)")) == 13
    assert "CPU threads" in row_of(answer.out, "BFS (published once a step)")[-1]
    # The store as a log has the rivals of the row with the same input.
    as_log = row_of(answer.out, "gpKVS, as a log (input in device memory)")
    assert as_log[3:10] == row_of(answer.out, "gpKVS (input in device memory)")[3:10]
    assert as_log[-1] != "-"
    # Figure 9 takes its lines from there, and leaves the variants.
    write(tmp_path, "gpm_modes_test", [mode("gpkvs", "gpm", 1.0), mode("gpkvs", "cap-mm", 9.0)])
    table = gpm.tables.fig9(gpm.Results(tmp_path, ("cpu",)), "test")
    assert "(CAP-mm)" not in row_of(table, "gpKVS")[-4]
    assert "device" not in table


def test_checkpoints_by_the_copy_engine_are_called_so(tmp_path: Path) -> None:
    engine = {"facts": {"checkpoint": "engine"}}
    kernels = {"facts": {"checkpoint": "kernels"}, "bytes_per_step": 1 << 30}
    lines = [mode("cfd", m, 0.1, **engine) for m in ("cap-fs", "ndp", "gpm")]
    lines += [mode("hotspot", m, 0.1, **kernels) for m in ("cap-fs", "ndp", "gpm")]
    # Older results do not tell: the library's rule was by size, and ndp was CAP-mm.
    lines += [mode("lenet", m, 0.1) for m in ("cap-fs", "ndp", "gpm")]
    lines += [
        mode("black_scholes", m, 0.1, bytes_per_step=1 << 30) for m in ("cap-fs", "ndp", "gpm")
    ]
    write(tmp_path, "gpm_modes_paper", lines)
    table = gpm.tables.fig10(gpm.Results(tmp_path), "paper")
    for title, ndp in (
        ("CFD (by the copy engine)", "1 *"),
        ("HS", "1"),
        ("DNN", "1 *"),
        ("BLK (by the copy engine)", "1 *"),
    ):
        assert row_of(table, title)[4] == ndp, title
    assert "that is CAP-mm" in table


def test_roofline_table(tmp_path: Path) -> None:
    lines = [mode("srad", "gpm", 0.002), mode("srad", "cap-mm", 0.004)]
    write(tmp_path, "gpm_modes_paper", lines, copy_engine_gb_per_s=4.0)
    table = gpm.tables.roofline(gpm.Results(tmp_path))
    cells = [cell.strip() for cell in table.splitlines()[-1].split("|")[1:-1]]
    assert cells[0] == "SRAD"
    # Half of the bound, a quarter of it; 2 times measured, 4 at most, 1 with both at their bounds.
    assert cells[-5:] == ["50 %", "25 %", "2", "4", "1"]


def test_a_medium_has_results_of_its_own(run: Run, tmp_path: Path) -> None:
    arguments = ("bench", "gpm-fig9", "--only", "prefix_sum", "--modes", "cap-fs,gpm", "--results",
                 tmp_path, "--size", "test", "--cpu-threads", "1")  # fmt: skip
    assert run(*arguments).status == 0
    answer = run(*arguments, "--medium", "limit=50MB/s")
    assert answer.status == 0, answer.err
    assert "limit=50MB/s" in answer.out and "| PS | aligned |" in answer.out
    results = gpm.Results(tmp_path, ("cpu",))
    assert results.media() == [("limit=50MB/s", "test")]
    line = results.modes("test", "limit=50MB/s")["prefix_sum"]["gpm"]
    assert line["medium"] == "limit=50MB/s"
    assert line["cost_seconds"] >= line["bytes_per_step"] / 50e6
    assert "medium" not in results.modes("test")["prefix_sum"]["gpm"]
    answer = run(*arguments, "--medium", "tape")
    assert answer.status == 1
    assert "tape" in answer.err and "optane" in answer.err


def write_runner(folder: Path, script: str) -> Path:
    """Writes a shell script that stands for holdfast-run, which it knows as $real."""
    runner = folder / "holdfast-run"
    runner.write_text(f'#!/bin/sh\nreal="{holdfast.workloads.executable()}"\n{script}\n')
    runner.chmod(0o755)
    return runner


def test_modes_that_end_differently_are_told(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("bench", "gpm-fig9", "--only", "prefix_sum", "--modes", "cap-fs,gpm", "--results",
                 tmp_path, "--size", "test", "--cpu-threads", "1", "--no-verify")  # fmt: skip
    assert run(*arguments).status == 0
    liar = write_runner(
        tmp_path,
        'case "$*" in *gpm*) lie=s/digest.:./\\&9/ ;; *) lie= ;; esac\n"$real" "$@" | sed "$lie"',
    )
    monkeypatch.setenv("HOLDFAST_RUN", str(liar))
    answer = run(*arguments)
    assert answer.status == 1
    assert "prefix_sum ends with another result in mode gpm" in answer.err


def test_the_oracle_is_asked_once_and_others_are_held_to_its_digest(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(modes: str, *more: str) -> Answer:
        return run("bench", "gpm-fig10", "--only", "gpkvs_95_5,srad", "--modes", modes, "--results",
                   tmp_path, "--size", "test", "--cpu-threads", "1", *more)  # fmt: skip

    assert measure("cap-mm,gpm").status == 0
    assert measure("cap-fs,ndp").status == 0  # another call goes on from what the first one found
    by = gpm.Results(tmp_path, ("cpu",)).modes("test")
    for lines in by.values():
        told = {name: line["verified_by"] for name, line in lines.items()}
        assert sorted(told.values()) == ["digest", "digest", "digest", "oracle"]
        assert len({line["state"] for line in lines.values()}) == 1
    assert len(by["gpkvs_95_5"]["gpm"]["state"]) == 65  # the pairs', and the answers'
    kept = tmp_path / "gpm_states_test-cpu.json"
    assert len(json.loads(kept.read_text())["results"]) == 2

    # A mode that ends with another result, and one whose state has another bit.
    liar = write_runner(
        tmp_path,
        'case "$*" in *cap-eadr*) set -- "$@" --set lambda=49 ;; esac\nexec "$real" "$@"',
    )
    with monkeypatch.context() as patch:
        patch.setenv("HOLDFAST_RUN", str(liar))
        answer = measure("cap-eadr", "--only", "srad")
    assert answer.status == 1
    assert "srad in mode cap-eadr ends with another result" in " ".join(answer.err.split())
    states = json.loads(kept.read_text())
    for line in states["results"]:
        line["state"] = f"{int(line['state'][0], 16) ^ 1:x}{line['state'][1:]}"
    kept.write_text(json.dumps(states))
    assert measure("gpm").status == 1


def test_a_run_that_the_oracle_refuses_is_not_kept(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = 's/"wrong":"","ok":true/"wrong":"row 3","ok":false/'
    liar = write_runner(tmp_path, f'"$real" "$@" | sed \'{wrong}\'')
    monkeypatch.setenv("HOLDFAST_RUN", str(liar))
    answer = run("bench", "gpm-fig9", "--only", "prefix_sum", "--modes", "gpm", "--results",
                 tmp_path, "--size", "test", "--cpu-threads", "1")  # fmt: skip
    assert answer.status == 1
    assert "row 3" in answer.err
    assert not list(tmp_path.glob("*.json"))


def test_fewer_steps_are_marked(tmp_path: Path) -> None:
    settings = gpm.Settings(tmp_path, size="paper")
    assert (settings.run("bfs_costs", "cap-fs").steps, settings.run("bfs", "cap-fs").steps) == (
        20,
        0,
    )
    assert settings.fewer_steps("gpkvs", "gpufs") == 2
    assert settings.run("hotspot", "cpu").steps == 2 != settings.run("hotspot", "gpm").steps
    assert settings.fewer_steps("gpkvs", "gpm") == settings.run("gpkvs", "gpm").steps == 0
    under = dataclasses.replace(settings, medium="optane")
    assert (under.fewer_steps("srad", "gpm"), under.fewer_steps("srad", "gpufs")) == (3, 2)
    assert (under.fewer_steps("bfs", "gpm"), settings.fewer_steps("srad", "gpm")) == (0, 0)
    assert settings.fewer_steps("gpdb_update", "gpm") == 0  # more than the size says
    assert gpm.Settings(tmp_path, size="real").run("black_scholes", "gpm").steps == 0
    lines = [mode("black_scholes", "cap-fs", 0.4, fewer_steps=True)]
    lines += [mode("black_scholes", "gpm", 0.1, fewer_steps=True)]
    lines += [mode("srad", m, 0.1) for m in ("cap-fs", "gpm")]
    write(tmp_path, "gpm_modes_paper", lines)
    table = gpm.tables.fig9(gpm.Results(tmp_path), "paper")
    assert "4 †" in row_of(table, "BLK (by the copy engine)" if "BLK (by" in table else "BLK")
    assert "† Of fewer steps" in table
    assert not any("†" in cell for cell in row_of(table, "SRAD"))


def test_what_is_of_another_run_is_marked_and_beats_nobody(tmp_path: Path) -> None:
    here = [mode("srad", m, cost) for m, cost in (("cap-fs", 1.0), ("cap-mm", 0.5), ("gpm", 0.2))]
    write(tmp_path, "gpm_rivals_paper", here)
    added = mode("srad", "gpufs", 0.1, commit="c0ffee")
    write(tmp_path, "gpm_modes_paper", [mode("bfs", "gpm", 1.0), added])
    results = gpm.Results(tmp_path)
    assert set(results.modes("paper")["srad"]) == {"cap-fs", "cap-mm", "gpm", "gpufs"}
    made = gpm.tables.fig9(results, "paper")
    row = row_of(made, "SRAD")
    assert "10 ‡" in row
    assert [cell for cell in row if "‡" in cell] == ["10 ‡"]  # no other cell is of that run
    assert "2.5 (CAP-mm)" in row  # not GPUfs, which is of another run
    assert "(‡ Of another run" in made
    # A line of the run itself comes before one that was added.
    write(tmp_path, "gpm_modes_paper", [*here, mode("srad", "gpm", 0.05, commit="c0ffee")])
    assert gpm.Results(tmp_path).modes("paper")["srad"]["gpm"]["cost_seconds"] == 0.2


def test_a_row_that_is_of_one_other_run_is_compared(tmp_path: Path) -> None:
    costs = (("cap-fs", 1.0), ("cap-mm", 0.5), ("gpm", 0.2))
    all_of_it = [mode("srad", m, cost, commit="c0ffee") for m, cost in costs]
    write(tmp_path, "gpm_modes_paper", [mode("bfs", "gpm", 1.0), *all_of_it])
    made = gpm.tables.fig9(gpm.Results(tmp_path), "paper")
    assert "‡" not in made
    assert "2.5 (CAP-mm)" in row_of(made, "SRAD")


def test_modes_of_one_commit_are_a_row(tmp_path: Path) -> None:
    rivals = [mode("srad", "cap-fs", 1.0), mode("srad", "gpm", 0.2)]
    write(tmp_path, "gpm_rivals_paper", rivals)
    write(tmp_path, "gpm_modes_paper", [mode("srad", "eadr", 0.1)])
    assert set(gpm.Results(tmp_path).modes("paper")["srad"]) == {"cap-fs", "gpm", "eadr"}
    write(tmp_path, "gpm_rivals_paper", rivals, commit="c0ffee")
    assert set(gpm.Results(tmp_path).modes("paper")["srad"]) == {"eadr"}


def test_a_variant_is_shown_by_its_figure_alone(run: Run, tmp_path: Path) -> None:
    answer = run("bench", "gpm-fig9", "--only", "bfs", "--modes", "cap-fs,gpm", "--results",
                 tmp_path, "--size", "test", "--cpu-threads", "1")  # fmt: skip
    assert answer.status == 0, answer.err
    results = gpm.Results(tmp_path, ("cpu",))
    assert list(results.modes("test")) == ["bfs"]
    by = results.modes("test", variants=True)
    assert list(by) == ["bfs", "bfs_costs"]
    assert by["bfs_costs"]["cap-fs"]["publish_costs"] == "1"
    # All costs after each level, beside what the baseline copies.
    more = by["bfs_costs"]["cap-fs"]["bytes_per_step"] / by["bfs"]["cap-fs"]["bytes_per_step"]
    assert more > 2
    assert "| BFS (CAP copies costs each level) |" in answer.out
    assert "each level)" in (tmp_path / "gpm-fig9-cpu.svg").read_text()
    assert "each level" not in gpm.tables.fig10(results, "test")
    (tmp_path / "gpm_modes_test-cpu.json").unlink()
    write(tmp_path, "gpm_modes_test", [mode("bfs", "cap-fs", 0.1), mode("bfs", "gpm", 0.1)])
    assert "(Not measured: BFS (CAP" in gpm.tables.fig9(results, "test")


def test_text_of_figures_stays_text(tmp_path: Path) -> None:
    write(tmp_path, "gpm_modes_paper", [mode("bfs", m, 0.1) for m in ("cap-fs", "gpm")])
    gpm.figures.draw("gpm-fig9", gpm.Results(tmp_path), tmp_path / "9.svg")
    text = (tmp_path / "9.svg").read_text()
    assert ">BFS</text>" in text and "sans-serif" in text


def test_logs_are_both_measured(run: Run, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    line = '{"benchmark": "log_insert", "layout": "coalesced", "threads": 64, "entry_bytes": 24, '
    fake(programs, "log_bench", line + '"million_inserts_per_s": 2}')
    answer = run("bench", "gpm-fig11", "--only", "gpkvs", "--size", "test", "--results", tmp_path,
                 "--programs", programs)  # fmt: skip
    assert answer.status == 0, answer.err
    lines = json.loads((tmp_path / "gpm_logs_test-cpu.json").read_text())["results"]
    assert {line["log"] for line in lines} == {"coalesced", "conventional"}
    assert all(line["facts"]["cache"] == "off" and line["verified"] for line in lines)
    assert "| gpKVS | test |" in answer.out
    assert (tmp_path / "gpm-fig11-cpu.svg").is_file()


def test_log_figure(tmp_path: Path) -> None:
    lines = [
        {**mode("gpkvs", "gpm", cost), "benchmark": "gpm_logs", "log": log}
        for log, cost in (("conventional", 0.6), ("coalesced", 0.2))
    ]
    write(tmp_path, "gpm_logs_real", lines)
    row = gpm.tables.fig11(gpm.Results(tmp_path)).splitlines()[-1]
    assert "| 3 |" in row and "3.3" in row
    assert gpm.figures.draw("gpm-fig11", gpm.Results(tmp_path), tmp_path / "11.svg")


def test_fig3_runs_both_sides(run: Run, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    common = '"gb_per_s": 2, "copy_engine_gb_per_s": 4, "ratio_to_copy_engine": 0.5}'
    fake(programs, "cap_bench", '{"benchmark": "c", "how": "copied", "cpu_threads": 1, ' + common)
    fake(programs, "persist_bench", '{"benchmark": "p", "threads": 256, ' + common)
    out = tmp_path / "results"
    arguments = ("bench", "gpm-fig3", "--size", "test", "--programs", programs, "--output", out)
    answer = run(*arguments)
    assert answer.status == 0, answer.err
    assert "CPU: copied" in answer.out and "50 %" in answer.out
    assert (out / "cap_bench-cpu.json").is_file()
    assert (out / "gpm-fig3-cpu.svg").is_file()
    (programs / "cap_bench").unlink()
    answer = run(*arguments)
    assert answer.status == 1
    assert "cap_bench" in answer.err


def test_fig1a_says_how_to_get_rocksdb(run: Run, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    answer = run("bench", "gpm-fig1a", "--size", "test", "--programs", programs, "--results",
                 tmp_path, "--cpu-threads", "1", "--json")  # fmt: skip
    assert answer.status == 0, answer.err
    assert "librocksdb-dev" in answer.json["notes"][0]
    assert answer.json["figures"] == [str(tmp_path / "gpm-fig1a-cpu.svg")]


def test_table5_covers_a_workload_whose_run_is_short(run: Run, tmp_path: Path) -> None:
    answer = run("bench", "gpm-table5", "--size", "test", "--only", "cfd", "--kills", 2,
                 "--results", tmp_path)  # fmt: skip
    assert answer.status == 0, answer.err
    assert "| CFD | test | 2 | before the commit |" in answer.out
    (line,) = json.loads((tmp_path / "gpm_restores_test-cpu.json").read_text())["results"]
    assert line["recovery_seconds"] > 0 and line["wrong"] == 0


def test_table5_crashes_each_workload_before_its_last_step_commits(
    run: Run, tmp_path: Path
) -> None:
    answer = run("bench", "gpm-table5", "--size", "test", "--kills", 1, "--results", tmp_path)
    assert answer.status == 0, answer.err
    lines = json.loads((tmp_path / "gpm_restores_test-cpu.json").read_text())["results"]
    assert [line["workload"] for line in lines] == list(gpm.ALL[:8])
    for line in lines:
        assert line["verified"] and line["crashed"] == "before the commit"
        assert line["recovery_seconds"] > 0
    answer = run("bench", "gpm-table5", "--only", "srad", "--size", "test", "--results", tmp_path)
    assert answer.status == 0  # native: its recovery is the program itself


def test_only_what_commits_as_a_whole_dies_before_it() -> None:
    for name, mode in (("bfs", "gpm"), ("gpkvs", "cap-mm")):
        with pytest.raises(holdfast.Error, match="commits nothing"):
            holdfast.workloads.run(
                holdfast.workloads.Run(name, mode=mode, die_in_step=1, verify=False)
            )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--only", "bsf"), ["--only bsf", "bfs"]),
        (("--modes", "fast"), ["--modes fast", "cap-mm"]),
        (("--size", "huge"), ["--size huge", "paper"]),
        (("--cpu-threads", "0"), ["--cpu-threads 0"]),
        (("--cpu-threads", "x"), ["--cpu-threads x"]),
    ],
)
def test_bad_options_are_named(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], words: list[str]
) -> None:
    answer = run("bench", "gpm-fig9", "--results", tmp_path, *arguments)
    assert answer.status == 1
    text = " ".join(answer.err.split())
    assert all(word in text for word in words), text
