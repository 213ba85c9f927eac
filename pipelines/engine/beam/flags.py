"""Check of the flags that are passed on to Beam, which silently ignores misspelt ones."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from corpora.errors import FarspanError, nearest
from pipelines.engine.options import EMBEDDED

# Options of Beam's Java job servers that Beam's Python package does not declare: those of portable pipelines and of
# Flink as the job server of Flink 1.19 lists them (DescribePipelineOptions), those of Spark from the source of Beam.
_SWITCHES = """
    allow_non_restored_state attached_mode auto_balance_write_files_sharding_enabled cache_disabled disable_metrics
    enable_heap_dumps enable_spark_metric_sinks enable_stable_input_drain event_log_enabled
    externalized_checkpoints_enabled fail_on_checkpointing_errors faster_copy finish_bundle_before_checkpointing
    force_unaligned_checkpoint_enabled load_balance_bundles log_mdc object_reuse operator_chaining
    prefer_group_by_key_to_handle_huge_values re_iterable_group_by_key_result
    retain_docker_containers retain_externalized_checkpoints_on_cancellation unaligned_checkpoint_enabled
    use_data_stream_for_batch uses_provided_spark_context
"""
_VALUES = """
    auto_watermark_interval batch_interval_millis bundle_processor_cache_timeout bundle_size checkpoint_dir
    checkpoint_duration_millis checkpoint_timeout_millis checkpointing_interval checkpointing_mode
    default_environment_config default_environment_type environment_expiration_millis execution_mode_for_batch
    execution_retry_delay file_input_split_max_size_m_b flink_conf_dir grouping_table_max_size_mb jdk_add_open_modules
    job_check_interval_in_secs latency_tracking_interval max_bundle_size max_bundle_time_mills
    max_cache_memory_usage_percent max_records_per_batch min_pause_between_checkpoints min_read_time_millis
    num_concurrent_checkpoints number_of_execution_retries read_time_percentage report_checkpoint_duration
    savepoint_path semi_persist_dir shutdown_sources_after_idle_ms spark_history_dir spark_master state_backend
    state_backend_factory state_backend_storage_path storage_level
"""


def check_flags(flags: Sequence[str], own: Sequence[str] = (), runner: str = EMBEDDED) -> None:
    """Refuse flags that neither farspan (``own``) nor Beam nor, with another runner, a job server knows."""
    if not flags:
        return
    served = {f"--{name}" for name in (_SWITCHES + _VALUES).split()}
    in_source = _flags_in_source() | served
    named = [flag.partition("=")[0] for flag in flags if flag.startswith("--")]
    for name in named:
        if name not in in_source and (hint := nearest(name, own)):  # at once: importing Beam takes seconds
            raise _unknown(name, hint)
    parser = _parser(runner)
    unknown = parser.parse_known_args(list(flags))[1]
    for flag in unknown:
        if flag.startswith("-"):
            name = flag.partition("=")[0]
            if name in served:
                raise FarspanError(f"{name} is a flag of Beam's job servers; the runner {runner} has none")
            raise _unknown(name, nearest(name, own) or nearest(name, parser._option_string_actions))
    if unknown:
        raise FarspanError(f"unexpected argument {unknown[0]!r}; quote globs, repeat a flag for more values")


def _parser(runner: str) -> argparse.ArgumentParser:
    """A parser of Beam's flags, with those of a runner and of Beam's job servers."""
    from pipelines.engine.beam.apache import PipelineOptions, beam

    if runner != EMBEDDED:
        with suppress(Exception):  # a runner that does not exist or lacks a package is named when the job starts
            beam.runners.create_runner(runner)  # its module may declare flags, as that of Dask does
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, conflict_handler="resolve")
    for options in PipelineOptions.__subclasses__():
        add = getattr(options, "_add_argparse_args", None)
        if add:
            add(parser)
    if runner != EMBEDDED:
        for name in _SWITCHES.split():
            parser.add_argument(f"--{name}", action="store_true")
        for name in _VALUES.split():
            parser.add_argument(f"--{name}")
    return parser


def _unknown(name: str, hint: str) -> FarspanError:
    return FarspanError(f"{name} is a flag of neither farspan nor Beam{hint}; see --help")


def _flags_in_source() -> set[str]:
    """Find the flags in the source of Beam's options, which has all flags of Beam."""
    beam = find_spec("apache_beam")
    if beam is None or beam.origin is None:
        return set()
    source = Path(beam.origin).parent / "options" / "pipeline_options.py"
    return set(re.findall(r"""['"](--[\w-]+)['"]""", source.read_text("utf-8")))
