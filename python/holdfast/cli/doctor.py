"""holdfast doctor: what this machine can promise, and why."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import _backend, _region, arena
from .._backend import ext
from .._errors import Error
from . import common

_PROBE_BYTES = 1 << 20


def _probe(domain: str, where: Path | None) -> dict[str, Any]:
    """Makes a small region of a domain and asks what it guarantees."""
    try:
        temporary = tempfile.TemporaryDirectory(prefix="holdfast-doctor-", dir=where)
    except OSError as error:
        reason = f"no region can be made in {where or tempfile.gettempdir()}: {error.strerror}"
        return {"persist": "none", "commit": "none", "reason": reason, "ok": False}
    with temporary as folder:
        path = Path(folder) / "probe.hf"
        try:
            region = _region.create(path, _PROBE_BYTES, domain=domain)
            guarantee = region.guarantee()
            answer = {
                "persist": guarantee.persist,
                "commit": guarantee.commit,
                "reason": guarantee.reason,
                "ok": True,
            }
            region.abandon()
            if domain == "file":
                _region.destroy(path)
        except Error as error:
            return {"persist": "none", "commit": "none", "reason": str(error), "ok": False}
        return answer


def _dax(platform: ext.Platform) -> dict[str, Any]:
    """Says what persistent memory there is. Making a region would overwrite it, so none is made."""
    devices = [
        {
            "path": device.path,
            "kind": device.kind,
            "size": device.size,
            "persistence_domain": device.persistence_domain,
        }
        for device in platform.dax_devices()
    ]
    if not devices:
        return {
            "persist": "none",
            "commit": "none",
            "reason": "this machine has no persistent memory (no device-DAX, no fsdax)",
            "devices": [],
            "ok": False,
        }
    domains = {str(device["persistence_domain"]) for device in devices}
    reason = f"persistence domain: {', '.join(sorted(domains))}"
    power = domains == {"cpu_cache"} or _backend.name() == "cpu"
    ddio = _ddio(platform)
    if not power and ddio.get("enabled") is False:
        power, reason = True, reason + "; DDIO is off for the GPU's root port"
    elif not power:
        reason += (
            "; the GPU's writes may stay in the processor's cache: holdfast::persist_begin() "
            "switches DDIO off for its root port, with root's rights"
        )
    return {
        "persist": "power" if power else "process",
        "commit": "power",
        "reason": reason,
        "devices": devices,
        "ok": True,
    }


def _ddio(platform: ext.Platform) -> dict[str, Any]:
    address = ext.device_pci_address()
    if not address:
        return {"reason": "no GPU in use"}
    try:
        port = platform.root_port(address)
        state = platform.ddio(address)
    except Error as error:
        return {"pci_address": address, "reason": str(error)}
    answer: dict[str, Any] = {"pci_address": address, "root_port": port}
    if state is None:
        vendor = platform.processor_vendor()
        answer["reason"] = f"no DDIO on this processor ({vendor}), or its state cannot be read"
    else:
        answer["enabled"] = state.enabled
    return answer


def _locks(folder: Path) -> dict[str, Any]:
    """Says whether locks keep a second process out of the files of a folder."""
    answer = {"folder": str(folder.absolute()), "hold": ext.locks_hold(_region.path_text(folder))}
    if answer["hold"]:
        return answer | {"reason": "a lock of a file keeps a second process out"}
    return answer | {
        "reason": "locks do nothing on this file system, so regions cannot live there: nothing "
        "would keep a second process out; use a local file system (ext4, XFS, Btrfs, tmpfs), or "
        "mount this one with locks"
    }


def _locks_here() -> dict[str, Any]:
    """The same of the current folder, which may be none to write in."""
    try:
        return _locks(Path())
    except Error as error:
        return {"folder": str(Path.cwd()), "hold": None, "reason": f"not known: {error}"}


def _report(wanted: Path | None) -> dict[str, Any]:
    platform = ext.Platform()
    usable, why = ext.usable()
    folder = arena.configured_folder()
    locks = _locks(wanted) if wanted else _locks_here()
    domains = {"file": _probe("file", wanted)}
    domains |= {name: _probe(name, None) for name in ("device", "emulated")}
    domains["dax"] = _dax(platform)
    return {
        "ok": usable and bool(domains["file"]["ok"]) and locks["hold"] is not False,
        "version": ext.version(),
        "backend": _backend.name(),
        "device": ext.device_name(),
        "usable": usable,
        "why_not_usable": why,
        "why_not_cuda": _backend.why_not_cuda,
        "processor_vendor": platform.processor_vendor(),
        "domains": domains,
        "locks": locks,
        "limits": {
            "memory_lock_bytes": platform.memory_lock_limit(),
            "arena_folder": folder,
            "arena_bytes_total": platform.folder_bytes_total(folder),
            "arena_bytes_free": platform.folder_bytes_free(folder),
            "device_bytes_free": ext.free_device_memory(),
        },
        "ddio": _ddio(platform),
    }


@common.command
def doctor(
    folder: Annotated[
        Path | None,
        typer.Option(help="Where regions are to live. Default: the current folder."),
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Says what runs here, what each domain guarantees and why, and the limits.

    Exits with 0 where a kernel can run, a region of the file domain can be made, and the folder's
    locks do not let two processes have one file.
    """
    report = _report(folder)
    if as_json:
        common.emit(report)
    else:
        _show(report)
    if not report["ok"]:
        raise typer.Exit(common.EXIT_FAILED)


def _show(report: dict[str, Any]) -> None:
    from rich.table import Table

    rows = {
        "version": report["version"],
        "backend": report["backend"],
        "device": report["device"],
        "kernels can run": "yes" if report["usable"] else f"no: {report['why_not_usable']}",
    }
    if report["why_not_cuda"]:
        rows["CUDA is not in use"] = report["why_not_cuda"]
    common.table("Backend", rows)

    grid = Table(title="What survives", title_justify="left")
    for column in ("domain", "after persist()", "after commit()", "why"):
        grid.add_column(column)
    for name, answer in report["domains"].items():
        grid.add_row(name, answer["persist"], answer["commit"], answer["reason"])
    common.out.print(grid)
    common.out.print(
        "process: kill -9, an abort, a GPU fault; power: a power cut or reboot too", style="dim"
    )

    limits = report["limits"]
    free, total = (common.size_text(limits[f"arena_bytes_{kind}"]) for kind in ("free", "total"))
    rows = {
        "memory lock": common.size_text(limits["memory_lock_bytes"]),
        "arena folder": limits["arena_folder"],
        "free there": f"{free} of {total}",
        "device memory free": common.size_text(limits["device_bytes_free"]),
        "processor": report["processor_vendor"],
    }
    locks = report["locks"]
    rows["locks"] = f"{locks['folder']}: {locks['reason']}"
    ddio = report["ddio"]
    if "root_port" in ddio:
        rows["GPU's root port"] = ddio["root_port"]
    rows["DDIO"] = (
        ("on" if ddio["enabled"] else "off") if "enabled" in ddio else ddio.get("reason", "unknown")
    )
    common.table("Limits", rows)
