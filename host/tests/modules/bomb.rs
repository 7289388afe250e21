//! Modules that take their compiler too much memory or time.

fn number(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).unwrap());
    bytes
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id], &*number(content.len()), content].concat()
}

/// A component around a module with so many functions, each of which repeats the
/// instructions.
pub(crate) fn component(functions: u8, instructions: &[u8], times: usize) -> Vec<u8> {
    // A parameter of i64, so that the compiler knows no value, no results and no locals.
    let types = section(1, &[1, 0x60, 1, 0x7e, 0]);
    let body = [&[0], &*instructions.repeat(times), &[0x0b]].concat();
    let body = [&*number(body.len()), &body].concat();
    let bodies = body.repeat(functions.into());
    let code = section(10, &[&[functions], &*bodies].concat());
    let functions = section(3, &[&[functions], &*vec![0; functions.into()]].concat());
    let module = [b"\0asm\x01\0\0\0".as_slice(), &types, &functions, &code].concat();
    [b"\0asm\x0d\0\x01\0".as_slice(), &section(1, &module)].concat()
}

/// 16 MiB of code: within the size of a module, and far beyond what a guest needs.
pub(crate) fn bomb() -> Vec<u8> {
    // local = local * 7 + local
    component(
        4,
        &[0x20, 0, 0x42, 7, 0x7e, 0x20, 0, 0x7c, 0x21, 0],
        400_000,
    )
}
