#!/bin/sh
# Runs an MPI program with three ranks: run_mpi.sh MPIEXEC NUMPROC_FLAG PROGRAM
set -eu
folder=$(mktemp -d /tmp/holdfast-mpi-XXXXXX)
trap 'rm -rf "$folder"' EXIT
# Containers: Open MPI refuses root, and more ranks than cores, and other users' shared memory.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
# What MPI never frees is none of our business where the sanitizers are built in.
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
"$1" "$2" 3 "$3" "$folder"
