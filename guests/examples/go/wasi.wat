;; What Go's runtime imports of WASI, without function: no arguments, no environment, no files, a
;; clock that stands still, always the same seed. The host offers a guest none of it.
(module
  (import "env" "memory" (memory 0))
  (func (export "args_sizes_get") (param i32 i32) (result i32)
    (i32.store (local.get 0) (i32.const 0)) (i32.store (local.get 1) (i32.const 0)) (i32.const 0))
  (func (export "args_get") (param i32 i32) (result i32) (i32.const 0))
  (func (export "environ_sizes_get") (param i32 i32) (result i32)
    (i32.store (local.get 0) (i32.const 0)) (i32.store (local.get 1) (i32.const 0)) (i32.const 0))
  (func (export "environ_get") (param i32 i32) (result i32) (i32.const 0))
  (func (export "clock_time_get") (param i32 i64 i32) (result i32)
    (i64.store (local.get 2) (i64.const 1)) (i32.const 0))
  ;; The seed of maps and of the scheduler.
  (func (export "random_get") (param i32 i32) (result i32)
    (memory.fill (local.get 0) (i32.const 42) (local.get 1)) (i32.const 0))
  (func (export "sched_yield") (result i32) (i32.const 0))
  ;; Every event has happened: nobody waits in a call.
  (func (export "poll_oneoff") (param i32 i32 i32 i32) (result i32)
    (memory.fill (local.get 1) (i32.const 0) (i32.mul (local.get 2) (i32.const 32)))
    (i32.store (local.get 3) (local.get 2)) (i32.const 0))
  (func (export "proc_exit") (param i32) unreachable)
  ;; EBADF: no file is open.
  (func (export "fd_write") (param i32 i32 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_read") (param i32 i32 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_close") (param i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_set_flags") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_prestat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_prestat_dir_name") (param i32 i32 i32) (result i32) (i32.const 8)))
