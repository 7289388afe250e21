//! Modules are compiled in a process of their own, which has limits.

use std::path::PathBuf;
use std::time::Duration;

use crate::bomb::{bomb, component};
use crate::deployed::process::davit;
use crate::podgc;
use davit_engine::{
    ChildCompiler, CompileError, CompileLimits, Compiler, Engine, EngineConfig, LoadError,
};

fn engine(cache: Option<PathBuf>, program: &str, limits: CompileLimits) -> Engine {
    Engine::new(EngineConfig {
        cache_dir: cache,
        compiler: Compiler::Child(ChildCompiler {
            program: program.into(),
            arguments: vec!["compile".to_owned()],
            limits,
        }),
        ..EngineConfig::default()
    })
    .unwrap()
}

const DAVIT: &str = env!("CARGO_BIN_EXE_davit");

async fn refusal(engine: &Engine, wasm: Vec<u8>) -> CompileError {
    match engine.load(wasm).await.err().unwrap() {
        LoadError::Compile(error) => error,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_guest_is_compiled_by_the_program_and_kept_for_the_next_start() {
    let cache = tempfile::tempdir().unwrap();
    let limits = CompileLimits::default();
    let place = Some(cache.path().to_owned());
    let first = engine(place.clone(), DAVIT, limits);
    let module = first.load(podgc()).await.unwrap();
    // The compiler is gone, and is not needed.
    let second = engine(place, "/no/such/program", limits);
    let again = second.load(podgc()).await.unwrap();
    assert_eq!(again.digest(), module.digest());
}

/// A component of an empty module and so many instances of it. It is no guest.
fn component_of_instances(count: u8) -> Vec<u8> {
    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0\x01\x08\0asm\x01\0\0\0";
    let instances = vec![0; 3 * usize::from(count)];
    let length = u8::try_from(instances.len() + 1).unwrap();
    assert!(length < 128, "a number of one byte");
    [EMPTY, &[2, length, count], &instances].concat()
}

#[test]
fn a_component_of_many_core_instances_is_refused_without_the_flag_that_admits_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("many.wasm");
    std::fs::write(&path, component_of_instances(38)).unwrap();
    let error_with = |flags: &[&str]| {
        let mut inspect = davit();
        inspect.args(["inspect", "--log", "off"]).args(flags);
        let output = inspect.arg(&path).output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for (flags, limit) in [(&[][..], 8), (&["--core-instances", "37"], 37)] {
        let expected = format!(
            "consists of more than {limit} core instances, which is the limit: raise \
             --core-instances"
        );
        let error = error_with(flags);
        assert!(error.contains(&expected), "{error}");
    }
    let error = error_with(&["--core-instances", "38"]);
    let no_guest = "it does not export davit:controller/decide";
    assert!(error.contains(no_guest), "{error}");
}

#[tokio::test]
async fn a_module_that_takes_too_much_memory_ends_its_compiler_alone() {
    let limits = CompileLimits {
        memory: 96 << 20,
        ..CompileLimits::default()
    };
    let engine = engine(None, DAVIT, limits);
    let error = refusal(&engine, bomb()).await;
    assert_eq!(
        error.to_string(),
        "compiling the module takes more than 96 MiB of memory, which is the limit"
    );
    engine.load(podgc()).await.unwrap();
}

#[tokio::test]
async fn a_module_that_takes_too_long_is_refused_and_not_compiled_again() {
    let limits = CompileLimits {
        memory: 8 << 30,
        processor_time: Duration::from_secs(1),
        ..CompileLimits::default()
    };
    let directory = tempfile::tempdir().unwrap();
    let count = directory.path().join("count");
    let script = format!("echo >>{}; exec {DAVIT} compile \"$@\"", count.display());
    let engine = Engine::new(EngineConfig {
        compiler: Compiler::Child(ChildCompiler {
            program: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script, "sh".to_owned()],
            limits,
        }),
        ..EngineConfig::default()
    })
    .unwrap();
    let error = refusal(&engine, bomb()).await;
    assert_eq!(
        error.to_string(),
        "compiling the module takes more than 1s of processor time, which is the limit"
    );
    assert_eq!(refusal(&engine, bomb()).await, error);
    assert_eq!(std::fs::read_to_string(&count).unwrap(), "\n");
}

#[tokio::test]
async fn a_compiler_that_does_not_end_is_ended() {
    let limits = CompileLimits {
        memory: 8 << 30,
        time: Duration::from_millis(200),
        ..CompileLimits::default()
    };
    let engine = engine(None, DAVIT, limits);
    let error = refusal(&engine, bomb()).await;
    assert_eq!(
        error.to_string(),
        "compiling the module takes more than 200ms, which is the limit"
    );
}

#[tokio::test]
async fn a_module_that_does_not_compile_is_refused_in_the_compilers_words() {
    let engine = engine(None, DAVIT, CompileLimits::default());
    // It drops what is not there.
    let error = refusal(&engine, component(1, &[0x1a], 1)).await;
    assert!(matches!(error, CompileError::Module(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with("the module does not compile: "), "{text}");
    assert!(text.contains("type mismatch"), "{text}");
    assert!(!text.contains('\n'), "{text}");
}

#[tokio::test]
async fn machine_code_has_a_limit() {
    let limits = CompileLimits {
        code: 1000,
        ..CompileLimits::default()
    };
    let error = refusal(&engine(None, DAVIT, limits), podgc()).await;
    assert!(matches!(error, CompileError::Limit(_)), "{error:?}");
}

/// It may be there again at the next attempt.
#[tokio::test]
async fn without_the_program_the_module_is_not_mentioned() {
    let engine = engine(None, "/no/such/program", CompileLimits::default());
    let error = refusal(&engine, podgc()).await;
    assert!(matches!(error, CompileError::Process(_)), "{error:?}");
}
