#![no_main]

libfuzzer_sys::fuzz_target!(|input: &str| {
    bench::Scenario::read(input).and_then(|scenario| scenario.arguments()).ok();
});
