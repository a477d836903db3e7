# The everyday commands; `just` lists them.

default:
    @just --list

# Build the program for use
build:
    cargo build --release --package forebay

# Serve a volume, with any flags of `forebay serve`
run *flags:
    cargo run --release --package forebay -- serve {{flags}}

# Run all tests, or those whose names contain the filter
test *filter:
    cargo test --workspace {{filter}}

# Check format and lints
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

# Put the code into the one format
fmt:
    cargo fmt --all

# Build the documentation of all crates
doc *flags:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps {{flags}}

# Run the benchmarks, or those whose names contain the filter, and print their tables (docs/performance.md)
bench *filter:
    cargo bench --workspace -- {{filter}}
    cargo run --quiet --package forebay-measure -- results
    {{ if filter == "" { "cargo run --quiet --package forebay-measure -- published" } else { "" } }}

# Run the benchmarks of this tree and of another revision in turns; fails where this one is slower
bench-compare base *programs:
    benches/compare.sh {{base}} {{programs}}

# Count instructions, and fail where they are a tenth above what is kept
bench-check:
    cargo bench --bench instructions -- --check benches/instructions.baseline

# Run fuzz targets under libFuzzer, all of them or those named (docs/fuzzing.md)
fuzz *flags:
    fuzz/run {{flags}}

# Break the program on purpose: `run` tries whether the suites notice (docs/mutants.md)
mutants *arguments:
    cargo run --quiet --package forebay-mutants -- {{arguments}}

# Check licences, sources and known vulnerabilities of all dependencies
deny:
    cargo deny --workspace check

# Print the table of settings as docs/settings.md has it
settings:
    cargo run --quiet --package forebay -- config --markdown

# Print the table of metrics as docs/metrics.md has it
metrics:
    cargo run --quiet --package forebay-metrics --example table

# Start Forebay in front of MinIO in containers
up:
    docker compose up --build --wait

# Everything that CI runs
ci:
    .ci/run
