from collections.abc import Sequence
import enum
from typing import Annotated

import numpy
import numpy.typing
from numpy.typing import NDArray


def version() -> str: ...

class DaxDevice:
    """A persistent-memory device or mount."""

    @property
    def path(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def persistence_domain(self) -> str: ...

class Ddio:
    """Where the writes of a PCI device are placed."""

    @property
    def root_port(self) -> str: ...

    @property
    def enabled(self) -> bool: ...

class Platform:
    """What this machine can promise."""

    def __init__(self, root: str = '') -> None: ...

    def dax_devices(self) -> list[DaxDevice]: ...

    def root_port(self, pci_address: str) -> str: ...

    def ddio(self, pci_address: str) -> Ddio | None: ...

    def processor_vendor(self) -> str: ...

    def memory_lock_limit(self) -> int: ...

    def folder_bytes_free(self, folder: str) -> int: ...

    def folder_bytes_total(self, folder: str) -> int: ...

def locks_hold(folder: str) -> bool:
    """Whether a lock of a file there keeps a second descriptor out."""

def backend_name() -> str: ...

def device_name() -> str: ...

def device_pci_address() -> str: ...

def device_number() -> int:
    """CUDA's number of this thread's device."""

def set_device(number: int) -> None:
    """Makes it this thread's device."""

def free_device_memory() -> int: ...

def usable() -> tuple[bool, str]:
    """Whether a kernel can be launched here, and what is missing if not."""

class ObjectInfo:
    """A named object of a region."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str:
        """the element type's name on the medium, such as 'f32'"""

    @property
    def offset(self) -> int:
        """bytes from the region's start"""

    @property
    def count(self) -> int:
        """elements"""

    @property
    def element_bytes(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def tracking(self) -> str: ...

    def __repr__(self) -> str: ...

class Guarantee:
    """What a crash may take away, and why."""

    @property
    def persist(self) -> str:
        """
        what is survived once persist() returned in a kernel: none, process or power
        """

    @property
    def commit(self) -> str:
        """what is survived once commit() returned: none, process or power"""

    @property
    def reason(self) -> str: ...

    def __repr__(self) -> str: ...

class OpenReport:
    """What opening a region cost."""

    @property
    def arena_found(self) -> bool:
        """a crashed process's memory was adopted"""

    @property
    def arena_set_aside(self) -> str:
        """where last_commit put an arena; remove it when it is not needed"""

    @property
    def check_ms(self) -> float: ...

    @property
    def load_ms(self) -> float: ...

    @property
    def pin_ms(self) -> float: ...

class CommitStats:
    """What a commit did."""

    @property
    def generation(self) -> int: ...

    @property
    def pages_examined(self) -> int: ...

    @property
    def pages_written(self) -> int: ...

    @property
    def pages_moved(self) -> int: ...

    @property
    def bytes_written(self) -> int: ...

    @property
    def snapshot_ms(self) -> float: ...

    @property
    def write_ms(self) -> float: ...

    def __repr__(self) -> str: ...

class BackupReport:
    """What a backup holds."""

    @property
    def uuid(self) -> str:
        """the copy's own"""

    @property
    def arena_found(self) -> bool:
        """it holds what a crashed process had persisted"""

    @property
    def generation(self) -> int:
        """of the commit that was copied; 0 for an arena without its file"""

    @property
    def region_bytes(self) -> int: ...

    @property
    def pages_written(self) -> int: ...

    def __repr__(self) -> str: ...

class Commit:
    """A commit on its way to the disk."""

    @property
    def done(self) -> bool: ...

    def wait(self) -> CommitStats:
        """Waits until the commit is durable. Raises what stopped it."""

class Region:
    """A region's handle; holdfast.Region wraps it."""

    def close(self) -> None: ...

    def detach(self, abandon: bool) -> None: ...

    def close_at_exit(self, abandon: bool) -> None: ...

    def leave_to_parent(self) -> None: ...

    def exported(self) -> dict[str, int]: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def path(self) -> str: ...

    @property
    def read_only(self) -> bool: ...

    @property
    def uuid(self) -> str: ...

    @property
    def domain(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def max_size(self) -> int: ...

    @property
    def used(self) -> int: ...

    @property
    def generation(self) -> int: ...

    @property
    def open_report(self) -> OpenReport: ...

    def guarantee(self) -> Guarantee: ...

    def objects(self) -> list[ObjectInfo]: ...

    def contains(self, name: str) -> bool: ...

    def info(self, name: str) -> ObjectInfo: ...

    def allocate(self, name: str, type: str, element_bytes: int, count: int, tracking: str) -> None: ...

    def bytes(self, name: str) -> numpy.typing.NDArray[numpy.uint8]: ...

    def remove(self, name: str) -> None: ...

    def grow(self, new_size: int) -> None: ...

    def mark(self, address: int, nbytes: int) -> None: ...

    def settle(self) -> None: ...

    def commit(self) -> CommitStats: ...

    def commit_async(self) -> Commit: ...

    def on_device(self, name: str, shape: Sequence[int], kind: str, bits: int) -> DeviceView: ...

class DeviceView:
    """An object's memory for DLPack; holdfast.DeviceArray wraps it."""

    @property
    def address(self) -> int: ...

    @property
    def device(self) -> tuple[int, int]:
        """DLPack's number of the kind of device, and which of that kind"""

    def capsule(self, versioned: bool) -> object:
        """A new capsule, which one consumer may take."""

def create(path: str, size: int, domain: str, max_size: int, arena_folder: str, medium: str) -> Region: ...

def open(path: str, arena_folder: str, max_size: int, read_only: bool, last_commit: bool) -> Region: ...

def open_or_create(path: str, size: int, domain: str, max_size: int, arena_folder: str) -> Region: ...

def backup(source: str, target: str, arena_folder: str, last_commit: bool) -> BackupReport: ...

def destroy(path: str, arena_folder: str) -> None: ...

class BatchResult:
    """What a batch did."""

    @property
    def inserted(self) -> int:
        """keys that were not in the store"""

    @property
    def updated(self) -> int:
        """keys that were"""

    @property
    def evicted(self) -> int:
        """keys that lost their place"""

    @property
    def removed(self) -> int:
        """keys that were erased"""

    def __repr__(self) -> str: ...

class StoreStats:
    """What a store holds and has done."""

    @property
    def records(self) -> int: ...

    @property
    def capacity(self) -> int: ...

    @property
    def max_batch(self) -> int: ...

    @property
    def batches(self) -> int: ...

    @property
    def cached(self) -> bool:
        """lookups read device memory alone: a copy of the table, or an index"""

    @property
    def total(self) -> BatchResult: ...

    @property
    def layout(self) -> str:
        """in_place or log; what follows is of the layout log, and else 0"""

    @property
    def index(self) -> str:
        """whole or fingerprints; none: of the layout in_place"""

    @property
    def log_records(self) -> int:
        """that the log takes"""

    @property
    def live_records(self) -> int:
        """pairs, and tombstones that are still needed"""

    @property
    def tombstones(self) -> int:
        """of them"""

    @property
    def segment_records(self) -> int: ...

    @property
    def segments(self) -> int: ...

    @property
    def free_segments(self) -> int: ...

    @property
    def snapshots(self) -> int:
        """segments that have a snapshot, by which the store is opened"""

    @property
    def snapshot_age(self) -> int:
        """runs that were committed since the oldest of them was taken"""

    @property
    def snapshots_used(self) -> int:
        """when it was opened"""

    @property
    def snapshots_refused(self) -> bool:
        """they were not as the log, which was read without any"""

    @property
    def batch_records(self) -> int:
        """operations of the batches since it was opened"""

    @property
    def copied_records(self) -> int:
        """by cleaning, since then"""

    @property
    def bytes_stored(self) -> int:
        """to the medium, since then"""

    @property
    def snapshot_bytes(self) -> int:
        """of them, for snapshots"""

    @property
    def write_amplification(self) -> float:
        """bytes stored for a byte of batches since it was opened"""

    @property
    def space_amplification(self) -> float:
        """records in segments that are not free for one that is live"""

    def __repr__(self) -> str: ...

class RecoveryReport:
    """What opening a store undid."""

    @property
    def needed(self) -> bool:
        """a batch was cut off"""

    @property
    def undone(self) -> int:
        """log entries that were undone"""

    @property
    def milliseconds(self) -> float: ...

class BatchTiming:
    """Milliseconds of the last batch's parts."""

    @property
    def copy(self) -> float: ...

    @property
    def order(self) -> float: ...

    @property
    def update(self) -> float: ...

    @property
    def commit(self) -> float: ...

class Store:
    """A store's handle; holdfast.KeyValueStore wraps it."""

    def set(self, keys: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', writable=False)], values: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', writable=False)]) -> BatchResult: ...

    def get(self, keys: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', writable=False)]) -> tuple[Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C')]]: ...

    def erase(self, keys: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', writable=False)]) -> BatchResult: ...

    def apply(self, operations: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', writable=False)], keys: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', writable=False)], values: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', writable=False)]) -> BatchResult: ...

    def scan(self) -> tuple[Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]]: ...

    def set_order(self, order: str) -> None: ...

    def reserve(self, capacity: int, log_records: int) -> None: ...

    def verify(self) -> str: ...

    def stats(self) -> StoreStats: ...

    def recovery(self) -> RecoveryReport: ...

    def timing(self) -> BatchTiming: ...

def create_store(region: Region, capacity: int, max_batch: int, cache: str, layout: str, log_records: int, index: str) -> Store: ...

def remove_store(region: Region) -> None: ...

def open_store(region: Region, cache: str, index: str) -> Store: ...

def store_region_bytes(capacity: int, max_batch: int, layout: str, log_records: int) -> int:
    """Bytes that a region must have for such a store."""

class MapStatus(enum.IntEnum):
    """What became of an operation."""

    inserted = 1
    """its key was not there, and is"""

    assigned = 2
    """its key was there, and has its value now"""

    kept = 3
    """its key was there, and was left as it was"""

    erased = 4
    """its key was there"""

    absent = 5
    """its key was not there"""

    superseded = 6
    """a later operation of the batch has its key"""

    full = 7
    """not done: all slots that its key can have are taken"""

    no_value = 8
    """not done: no place for one more value is left"""

    refused = 9
    """not done, in a bytes map: another key has the digest of its key"""

class MapOp(enum.IntEnum):
    """What an operation of apply() is."""

    insert = 1

    insert_or_assign = 2

    assign = 3

    find_or_insert = 4

    erase = 5

    find = 6

class MapResult:
    """How many operations of a batch had which MapStatus."""

    @property
    def inserted(self) -> int: ...

    @property
    def assigned(self) -> int: ...

    @property
    def kept(self) -> int: ...

    @property
    def erased(self) -> int: ...

    @property
    def absent(self) -> int: ...

    @property
    def superseded(self) -> int: ...

    @property
    def full(self) -> int: ...

    @property
    def no_value(self) -> int: ...

    @property
    def not_done(self) -> int:
        """full and no_value together"""

    def __repr__(self) -> str: ...

class MapEviction:
    """What insert_and_evict() did."""

    @property
    def result(self) -> MapResult: ...

    @property
    def evicted(self) -> int:
        """pairs that were in the map"""

    @property
    def count(self) -> int:
        """those, and of the batch those that are not done"""

class MapCache:
    """As holdfast.MapCache, which checks."""

    def __init__(self, bytes: int, policy: str, load_every: int) -> None: ...

class MapCacheStats:
    """What a map's cache does."""

    @property
    def rows(self) -> int:
        """values that there is room for; 0: there is no cache"""

    @property
    def hits(self) -> int:
        """lookups that found their value here"""

    @property
    def misses(self) -> int:
        """and on the medium, since the map was opened"""

    @property
    def loads(self) -> int:
        """that are done"""

    def __repr__(self) -> str: ...

class MapStats:
    """What a map holds."""

    @property
    def size(self) -> int:
        """pairs"""

    @property
    def capacity(self) -> int:
        """slots"""

    @property
    def table_bytes(self) -> int: ...

    @property
    def value_bytes(self) -> int: ...

    @property
    def value_places(self) -> int:
        """0: values are in slots"""

    @property
    def free_places(self) -> int:
        """of these"""

    @property
    def max_batch(self) -> int: ...

    @property
    def directory(self) -> bool:
        """there is one"""

    @property
    def left_to_move(self) -> int:
        """buckets that migrate() has to empty yet; 0: the table does not grow"""

    @property
    def cache(self) -> MapCacheStats: ...

    def __repr__(self) -> str: ...

class MapVersion:
    """A moment of a map; holdfast.MapVersion wraps it."""

    def __init__(self, opening: int, number: int, seen: int = 0) -> None: ...

    @property
    def opening(self) -> int: ...

    @property
    def number(self) -> int: ...

    @property
    def seen(self) -> int: ...

class MapChanges:
    """Counts; holdfast.MapChanges has the arrays."""

    def __init__(self, since: MapVersion, to: MapVersion, upserts: int, tombstones: int) -> None: ...

    @property
    def to(self) -> MapVersion: ...

    @property
    def upserts(self) -> int: ...

    @property
    def tombstones(self) -> int: ...

class MapRecovery:
    """What opening a map found, and put in order."""

    @property
    def pairs(self) -> int: ...

    @property
    def cleared(self) -> int:
        """slots whose insertion was cut off"""

    @property
    def erased(self) -> int:
        """slots of keys that were erased"""

    @property
    def duplicates(self) -> int: ...

    @property
    def needed(self) -> bool: ...

    def __repr__(self) -> str: ...

class MapTiming:
    """Milliseconds of the last batch's parts."""

    @property
    def prepare(self) -> float: ...

    @property
    def apply(self) -> float: ...

    @property
    def report(self) -> float: ...

class Map:
    """A map's handle; holdfast.Map wraps it."""

    def accumulate(self, element: str, keys: int, deltas: int, count: int, status: int, streams: Sequence[int]) -> MapResult: ...

    def update(self, operation: str, keys: int, values: int, out: int, count: int, status: int, streams: Sequence[int]) -> MapResult: ...

    def apply(self, operations: int, keys: int, values: int, out: int, count: int, status: int, streams: Sequence[int]) -> MapResult: ...

    def insert_and_evict(self, keys: int, values: int, scores: int, count: int, evicted_keys: int, evicted_values: int, evicted_scores: int, status: int, streams: Sequence[int]) -> MapEviction: ...

    def scores(self, keys: int, scores: int, found: int, count: int, streams: Sequence[int]) -> None: ...

    def find(self, keys: int, values: int, found: int, count: int, streams: Sequence[int]) -> None: ...

    def export_batch(self, first: int, slots: int, keys: int, values: int, streams: Sequence[int]) -> int: ...

    def export_changes(self, since: MapVersion, most: int, keys: int, values: int, erased: int, streams: Sequence[int]) -> MapChanges: ...

    def apply_changes(self, changes: MapChanges, keys: int, values: int, erased: int, streams: Sequence[int]) -> MapResult: ...

    def follow(self, version: MapVersion) -> None: ...

    def version(self) -> MapVersion: ...

    def followed(self) -> MapVersion: ...

    def set_order(self, order: str) -> None: ...

    def reserve(self, capacity: int) -> None: ...

    def grow(self) -> None: ...

    def migrate(self, buckets: int) -> bool: ...

    def load_cache(self) -> None: ...

    def await_cache(self) -> None: ...

    def close(self) -> None: ...

    def verify(self) -> str: ...

    def stats(self) -> MapStats: ...

    def recovery(self) -> MapRecovery: ...

    def timing(self) -> MapTiming: ...

def create_map(region: Region, name: str, key_bytes: int, capacity: int, value_bytes: int, max_batch: int, value_places: int, changes: int, directory: str, scores: str, cache: MapCache) -> Map: ...

def open_map(region: Region, name: str, key_bytes: int, value_bytes: int, max_batch: int, directory: str, scores: str, cache: MapCache) -> Map: ...

def remove_map(region: Region, name: str) -> None: ...

def has_map(region: Region, name: str) -> bool:
    """
    Whether there is a map of this name, whole or damaged, or another durable object.
    """

def map_recorded(region: Region, name: str) -> int:
    """What a map that is there was made with as `changes`."""

def map_region_bytes(key_bytes: int, capacity: int, value_bytes: int, max_batch: int, value_places: int, changes: int) -> int:
    """Bytes that a region must have for such a map."""

class LogMapResult:
    """What a batch did; a key that it has twice counts once."""

    @property
    def inserted(self) -> int:
        """keys that were not there"""

    @property
    def assigned(self) -> int:
        """keys that were"""

    @property
    def erased(self) -> int: ...

    def __repr__(self) -> str: ...

class LogMapStats:
    """What a log map holds."""

    @property
    def size(self) -> int:
        """pairs"""

    @property
    def capacity(self) -> int:
        """pairs"""

    @property
    def places(self) -> int:
        """for values: the capacity and a batch"""

    @property
    def free_places(self) -> int:
        """of these"""

    @property
    def value_bytes(self) -> int: ...

    @property
    def max_batch(self) -> int: ...

    @property
    def index(self) -> StoreStats:
        """of its log: segments, amplification"""

    def __repr__(self) -> str: ...

class LogMap:
    """A log map's handle; holdfast.LogMap wraps it."""

    def insert_or_assign(self, keys: int, values: int, count: int, status: int, streams: Sequence[int]) -> LogMapResult: ...

    def insert(self, keys: int, values: int, count: int, status: int, streams: Sequence[int]) -> LogMapResult: ...

    def assign(self, keys: int, values: int, count: int, status: int, streams: Sequence[int]) -> LogMapResult: ...

    def erase(self, keys: int, count: int, status: int, streams: Sequence[int]) -> LogMapResult: ...

    def apply(self, operations: int, keys: int, values: int, count: int, status: int, streams: Sequence[int]) -> LogMapResult: ...

    def find(self, keys: int, values: int, found: int, count: int, streams: Sequence[int]) -> None: ...

    def scan(self, keys: int, values: int, limit: int) -> int: ...

    def close(self) -> None: ...

    def reserve(self, capacity: int, log_records: int) -> None: ...

    def verify(self) -> str: ...

    def stats(self) -> LogMapStats: ...

    def recovery(self) -> RecoveryReport: ...

def create_log_map(region: Region, name: str, capacity: int, value_bytes: int, max_batch: int, log_records: int, index: str) -> LogMap: ...

def remove_log_map(region: Region, name: str) -> None: ...

def open_log_map(region: Region, name: str, index: str) -> LogMap: ...

def log_map_region_bytes(capacity: int, value_bytes: int, max_batch: int, log_records: int) -> int:
    """Bytes that a region must have for such a map."""

class BytesMapResult:
    """How many operations of a batch had which MapStatus."""

    @property
    def inserted(self) -> int: ...

    @property
    def assigned(self) -> int: ...

    @property
    def kept(self) -> int: ...

    @property
    def erased(self) -> int: ...

    @property
    def absent(self) -> int: ...

    @property
    def superseded(self) -> int: ...

    @property
    def full(self) -> int: ...

    @property
    def no_value(self) -> int: ...

    @property
    def refused(self) -> int: ...

    @property
    def not_done(self) -> int:
        """full, no_value and refused together"""

    def __repr__(self) -> str: ...

class BytesMapStats:
    """What a bytes map holds."""

    @property
    def size(self) -> int:
        """pairs"""

    @property
    def capacity(self) -> int:
        """slots of the index"""

    @property
    def record_bytes(self) -> int:
        """that there are for records, in all of its objects"""

    @property
    def free_bytes(self) -> int:
        """of these"""

    @property
    def largest_free(self) -> int:
        """bytes that are free side by side: no larger record fits"""

    @property
    def free_extents(self) -> int:
        """pieces that the free bytes are in"""

    @property
    def max_batch(self) -> int: ...

    def __repr__(self) -> str: ...

class BytesMap:
    """A handle; holdfast.BytesMap wraps it."""

    def update(self, operation: str, key_bytes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], key_offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], value_bytes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], value_offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple[BytesMapResult, Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C')]]: ...

    def find(self, bytes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple[tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]], Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C')]]: ...

    def contains(self, bytes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C')]: ...

    def export_batch(self, first: int, slots: int) -> tuple[tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]], tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]], int]: ...

    def reserve(self, capacity: int, record_bytes: int) -> None: ...

    def close(self) -> None: ...

    def verify(self) -> str: ...

    def stats(self) -> BytesMapStats: ...

    def recovery(self) -> MapRecovery: ...

def create_bytes_map(region: Region, name: str, capacity: int, record_bytes: int, max_batch: int) -> BytesMap: ...

def remove_bytes_map(region: Region, name: str) -> None: ...

def open_bytes_map(region: Region, name: str, max_batch: int) -> BytesMap: ...

def bytes_map_region_bytes(capacity: int, record_bytes: int, max_batch: int) -> int:
    """Bytes that a region must have for such a map."""

def record_bytes_of(key_bytes: int, value_bytes: int) -> int: ...

class CheckpointBuffer:
    """A buffer of a group in a region."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str:
        """the element type's name, such as 'f32'"""

    @property
    def count(self) -> int:
        """elements"""

    @property
    def element_bytes(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

class PendingSave:
    """A save on its way."""

    def done(self) -> bool: ...

    def wait(self) -> None: ...

class ArrayView:
    """The memory of an object that has __dlpack__."""

    @property
    def address(self) -> int: ...

    @property
    def shape(self) -> list[int]: ...

    @property
    def strides(self) -> list[int]:
        """in elements"""

    @property
    def code(self) -> int:
        """DLPack's number of the kind of type"""

    @property
    def bits(self) -> int:
        """of an element"""

    @property
    def device(self) -> int:
        """DLPack's number of the kind of device"""

class Checkpoint:
    """A checkpoint's handle; holdfast.Checkpoint wraps it."""

    def add(self, group: str, buffer: str, type: str, count: int, element_bytes: int, address: int, on_device: bool) -> None: ...

    def save(self, group: str, tag: int) -> None: ...

    def save_async(self, group: str, tag: int) -> PendingSave: ...

    def restore(self, group: str) -> int | None: ...

    def forget(self, group: str) -> None: ...

    def stored(self, group: str) -> list[CheckpointBuffer]: ...

    def stored_groups(self) -> list[str]: ...

    def close(self) -> None: ...

def make_checkpoint(region: Region, name: str) -> Checkpoint: ...

def checkpoint_region_bytes(buffer_bytes: int, buffers: int) -> int:
    """Bytes that one group takes in its region."""

def view_array(array: object) -> ArrayView: ...

def synchronize(stream: int) -> None:
    """
    Waits for a stream of the device; 0: for all that this process gave it.
    """

class RankGroup:
    """The processes of a run."""

    @property
    def rank(self) -> int:
        """0 to size - 1"""

    @property
    def size(self) -> int: ...

    @property
    def node(self) -> str:
        """equal for ranks that share a machine"""

    def all_gather(self, mine: bytes, timeout: float) -> list[bytes]:
        """
        Returns what each rank has given, by rank. Collective; timeout: seconds.
        """

def local_ranks(path: str, rank: int, size: int, timeout: float, node: str) -> RankGroup: ...

def ranks_from_environment(timeout: float) -> RankGroup: ...

def ranks_by_call(all_gather: object, rank: int, size: int, node: str) -> RankGroup: ...

class HistoryCount:
    """Checkpoints, and their bytes."""

    @property
    def checkpoints(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    def __repr__(self) -> str: ...

class HistoryStats:
    """What a history has done since it was opened, and what it holds."""

    @property
    def saves(self) -> HistoryCount: ...

    @property
    def restores(self) -> HistoryCount: ...

    @property
    def restored_from(self) -> dict[str, HistoryCount]:
        """by tier"""

    @property
    def flushed_to(self) -> dict[str, HistoryCount]:
        """by tier"""

    @property
    def fetched_to(self) -> dict[str, HistoryCount]:
        """by tier"""

    @property
    def evicted_from(self) -> dict[str, HistoryCount]:
        """by tier"""

    @property
    def held_in(self) -> dict[str, HistoryCount]:
        """by tier, now"""

    @property
    def save_seconds(self) -> float:
        """for which saves kept their callers"""

    @property
    def restore_seconds(self) -> float:
        """the same of restores"""

    @property
    def waits(self) -> int:
        """of saves and restores, for room or for a transfer"""

    @property
    def failed_transfers(self) -> int: ...

    @property
    def prefetch_distance(self) -> int:
        """hinted checkpoints that the GPU has ready, in a row, now"""

    def __repr__(self) -> str: ...

class HistoryArray:
    """An array in a checkpoint."""

    @property
    def name(self) -> str: ...

    @property
    def nbytes(self) -> int: ...

class HistoryStep:
    """A checkpoint in a folder."""

    @property
    def path(self) -> str:
        """of its file"""

    @property
    def step(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """of the arrays, and of what lies between them"""

    @property
    def saved_unix_ns(self) -> int: ...

    @property
    def arrays(self) -> list[HistoryArray]: ...

class HistoryDamage:
    """A file that stands where a checkpoint would, and is not offered."""

    @property
    def path(self) -> str: ...

    @property
    def step(self) -> int:
        """by its name"""

    @property
    def code(self) -> str: ...

    @property
    def reason(self) -> str: ...

class HistoryFolder:
    """What the folder of a history held when this was made."""

    @property
    def path(self) -> str: ...

    @property
    def uuid(self) -> str: ...

    @property
    def file_bytes(self) -> int:
        """of the complete checkpoints' files"""

    @property
    def latest(self) -> int | None:
        """the step that was completed last"""

    @property
    def steps(self) -> list[HistoryStep]: ...

    @property
    def damaged(self) -> list[HistoryDamage]: ...

    def verify(self, step: int) -> None: ...

def history_folder(path: str) -> HistoryFolder:
    """Reads what a folder has, beside a process that has the history open."""

def history_in_store(store: object) -> HistoryFolder:
    """The same of what an object store has."""

def discard_from_history(path: str, steps: Sequence[int]) -> None:
    """Removes checkpoints of a history that no process has open."""

def discard_from_store(store: object, steps: Sequence[int]) -> None:
    """The same in an object store."""

class HistoryTicket:
    """A save on its way."""

    @property
    def step(self) -> int: ...

    def staged(self) -> bool: ...

    def is_in(self, tier: str) -> bool: ...

    def wait_staged(self) -> None: ...

    def wait(self, tier: str) -> None: ...

class History:
    """A history's handle; holdfast.History wraps it."""

    def close(self) -> None: ...

    def close_at_exit(self) -> None: ...

    def leave_to_parent(self) -> None: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def disk(self) -> str: ...

    def protect(self, name: str, address: int, nbytes: int, on_device: bool) -> None: ...

    def unprotect(self, name: str) -> None: ...

    def save(self, step: int, stream: int | None, keep: bool) -> HistoryTicket: ...

    def restore(self, step: int, stream: int | None, keep: bool) -> None: ...

    def hint(self, steps: Sequence[int]) -> None: ...

    def prefetch_start(self) -> None: ...

    def size(self, step: int, name: str) -> int: ...

    def discard(self, step: int) -> bool: ...

    def steps(self) -> list[int]: ...

    def latest(self, tier: str) -> int | None: ...

    def agree(self, tier: str) -> list[int]: ...

    def latest_of_all(self, tier: str) -> int | None: ...

    def wait_for_all(self, ticket: HistoryTicket, tier: str) -> None: ...

    def flush(self) -> None: ...

    def verify(self, step: int) -> None: ...

    def stats(self) -> HistoryStats: ...

    def snapshot(self) -> str:
        """What holdfast.HistorySnapshot is made of: a JSON object."""

def open_history(gpu: int, host: int, host_region: str, partner: int, partner_region: str, partner_owner: str, partner_lender: str, disk: str, disk_bytes: int, remote: str, remote_store: object | None, remote_bytes: int, discard_consumed: bool, keep_last: int, keep_every: int, on_error: str, status: str, trace: str, trace_events: int, ranks: RankGroup | None, coupling: str, ranks_timeout: float, node_host: int, node_disk_bytes: int, weight: int) -> History: ...

class MemoryServer:
    """A memory server's handle; holdfast.MemoryServer wraps it."""

    @property
    def address(self) -> str: ...

    @property
    def used_bytes(self) -> int: ...

    @property
    def names(self) -> int: ...

    def close(self) -> None: ...

def serve_memory(bytes: int, listen: str, connections: int, silence: float) -> MemoryServer: ...

class PartnerMemory:
    """Lent memory's handle; holdfast.PartnerMemory wraps it."""

    def close(self) -> None: ...

    def leave_to_parent(self) -> None: ...

def lend_memory(path: str, bytes: int) -> PartnerMemory: ...

class ArenaInfo:
    """The shared memory that belongs to a region's file."""

    @property
    def path(self) -> str:
        """where it is, or would be"""

    @property
    def exists(self) -> bool: ...

    @property
    def valid(self) -> bool: ...

    @property
    def this_boot(self) -> bool:
        """left by a crash since the last boot"""

    @property
    def bytes(self) -> int: ...

    @property
    def problem(self) -> str:
        """why it is not valid"""

class ImageInfo:
    """What a region's file holds."""

    @property
    def path(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def in_use(self) -> bool:
        """a process has the region open"""

    @property
    def uuid(self) -> str: ...

    @property
    def created_unix_ns(self) -> int: ...

    @property
    def generation(self) -> int: ...

    @property
    def committed_unix_ns(self) -> int: ...

    @property
    def region_bytes(self) -> int: ...

    @property
    def file_bytes(self) -> int: ...

    @property
    def allocated_bytes(self) -> int: ...

    @property
    def pages_stored(self) -> int:
        """pages that are not all zero"""

    @property
    def objects(self) -> list[ObjectInfo]:
        """of the last commit"""

    @property
    def arena(self) -> ArenaInfo: ...

def inspect_image(path: str, everything: bool, arena_folder: str) -> ImageInfo: ...
