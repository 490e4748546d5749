"""For experiments and tests: regions that take as long as on another medium."""

from ._region import Path, Region, create_on

__all__ = ["create"]


def create(
    path: Path,
    size: int,
    *,
    medium: str,
    domain: str = "file",
    max_size: int = 0,
    arena_folder: Path | None = None,
) -> Region:
    """As holdfast.create(), of memory that stands for a medium; that is not stored.

    medium: as `holdfast run --medium` takes it, such as "optane" or "limit=1.6GB/s". In an emulated
    region every persist of a kernel waits (CPU backend); in others checkpoints and commits do.
    """
    return create_on(medium, path, size, domain, max_size, arena_folder)
