# Sourced by test, test-nic and test-vm: builds the test programs once, runs each with its own log, and reports.
#
# A run has one folder, which the outermost script removes at its end:
#   programs  crate, kind, name and executable of each test program, separated by tabs
#   notes     skips and repeats (LINERATE_TEST_LOG, see crates/testing)
#   logs/     the output of each program and each check
#   times     duration of each program and check in seconds
#   ended/    how each ended: label, exit status, kind (tests, docs, check), number of its tests or "-"
#   tmp/      the temporary folder of everything that runs; empty at the end
# shellcheck shell=sh

tab=$(printf '\t')

# Starts a run, or joins that of the calling script.
begin() {
    is_outermost=
    began=$(date +%s)
    if [ -z "${LINERATE_TEST_RUN:-}" ]; then
        is_outermost=yes
        LINERATE_TEST_RUN=$(mktemp -d)
        trap 'rm -rf "$LINERATE_TEST_RUN"' EXIT
        trap 'exit 130' INT TERM
        mkdir "$LINERATE_TEST_RUN/logs" "$LINERATE_TEST_RUN/ended" "$LINERATE_TEST_RUN/tmp"
        # Some tests switch to unprivileged users.
        chmod 711 "$LINERATE_TEST_RUN"
        chmod 1777 "$LINERATE_TEST_RUN/tmp"
        export LINERATE_TEST_RUN TMPDIR="$LINERATE_TEST_RUN/tmp" LINERATE_TEST_LOG="$LINERATE_TEST_RUN/notes"
        : >"$LINERATE_TEST_LOG"
        chmod 666 "$LINERATE_TEST_LOG"
    fi
    run=$LINERATE_TEST_RUN
}

# CPU time of this machine since it booted, in ticks: busy, and all that its CPUs could have done.
ticks() { awk '/^cpu / { for (field = 2; field <= 9; field++) all += $field; print all - $5 - $6, all }' /proc/stat; }

# Names the next part of a run, and how busy the CPUs were in the part before it.
stage() {
    share=
    now=$(ticks)
    if [ -n "${stage_ticks:-}" ]; then
        share=$(echo "$stage_ticks $now" | awk '{ if ($4 > $2) printf ", CPUs %.0f %% busy", 100 * ($3 - $1) / ($4 - $2) }')
    fi
    stage_ticks=$now
    echo "== $1 (after $(($(date +%s) - began)) s$share)"
}

# Builds all test programs with the features of the whole workspace. A build of some crates alone has other features, and
# rebuilds most of them.
build_programs() {
    [ ! -e "$run/programs" ] || return 0
    # The tests named vm are built only by name, like the bench that scripts/test-exact runs.
    for which in "" "--test=vm" "--bench=exact"; do
        cargo test --workspace --locked --no-run $which --message-format=json-render-diagnostics >>"$run/built" ||
            stop building "the test programs cannot be built"
    done
    sed -n 's|^{"reason":"compiler-artifact".*"manifest_path":"[^"]*/crates/\([^"/]*\)/Cargo.toml","target":{"kind":\["\([a-z]*\)".*"name":"\([^"]*\)","src_path".*"test":true},"features".*"executable":"\([^"]*\)".*|\1'"$tab"'\2'"$tab"'\3'"$tab"'\4|p' \
        "$run/built" | sort >"$run/programs.new"
    [ -s "$run/programs.new" ] || stop building "cargo listed no test program"
    mv "$run/programs.new" "$run/programs"
}

# The executable of one of a crate's integration tests.
program() { # crate name
    awk -F "$tab" -v crate="$1" -v name="$2" '
        $1 == crate && $2 == "test" && $3 == name { print $4; found++ }
        END { if (found != 1) { print "error: cargo built no test program " name " of " crate >"/dev/stderr"; exit 1 } }
    ' "$run/programs"
}

# The built command lab vm, from the same build.
lab() {
    beside=$(program cli vm)
    "${beside%/deps/*}/linerate" lab vm "$@"
}

# The number of a program's tests that its arguments select.
chosen() { # executable argument...
    "$@" --list </dev/null | grep -c ': test$' || true
}

# A prefix for each test program, for example: nice -n 10.
with=
# At most this many failed tests of a run, and of a program, are run again: more failures are not due to a starved machine.
repeats=5
repeats_of_a_program=2
# Runs a test program in its crate's folder, as cargo does.
run_program() { # label tests-or-"-" crate executable argument...
    label=$1 expected=$2 folder=crates/$3 since=$(date +%s)
    shift 3
    status=0
    (
        echo "program: $(basename "$1")"
        cd "$folder"
        # shellcheck disable=SC2086
        exec $with "$@" </dev/null
    ) >"$run/logs/$label" 2>&1 || status=$?
    [ "$status" -ne 101 ] || run_again "$label" "$folder" "$1"
    ended "$label" "$status" tests "$expected"
}

# Runs the failed tests of a program again, each alone. If all pass, the status is 0, and each is shown with its
# first failure and counted as repeated: a real failure fails here too, one caused by a busy machine does not.
run_again() { # label folder executable
    failed=$(sed -n 's/ - should panic \.\.\. FAILED$/ ... FAILED/; s/^test \(.*\) \.\.\. FAILED$/\1/p' "$run/logs/$1")
    number=$(echo "$failed" | grep -c . || true)
    [ "$number" -gt 0 ] && [ "$number" -le "$repeats_of_a_program" ] && [ "$number" -le "$repeats" ] || return 0
    repeats=$((repeats - number))
    for test in $failed; do
        (cd "$2" && exec "$3" --exact "$test" </dev/null) >>"$run/logs/$1.again" 2>&1 || return 0
    done
    echo "== $1: failed at first, and passed when run again alone:"
    cat "$run/logs/$1"
    for test in $failed; do
        printf 'REPEATED\t%s\t%s\tfailed at first, passed alone\n' "$(basename "$3")" "$test" | tee -a "$LINERATE_TEST_LOG"
    done
    status=0
}

# The same for the tests of a program that its arguments select: selecting none is an error.
run_chosen() { # label crate name argument...
    label=$1 crate=$2
    executable=$(program "$2" "$3")
    shift 3
    number=$(chosen "$executable" "$@")
    if [ "$number" -eq 0 ]; then
        fail "$label" "$* chooses no test of $executable"
    else
        run_program "$label" "$number" "$crate" "$executable" "$@"
    fi
}

# Runs a command that is not a test program.
run_check() { # label kind command...
    label=$1 kind=$2 since=$(date +%s)
    shift 2
    status=0
    "$@" >"$run/logs/$label" 2>&1 </dev/null || status=$?
    ended "$label" "$status" "$kind" -
}

# Records how something ended. Only failures are shown, at once and in full.
ended() { # label status kind tests
    echo "$1$tab$2$tab$3$tab$4" >"$run/ended/$1"
    echo "$(($(date +%s) - ${since:-$(date +%s)})) s  $1" >>"$run/times"
    since=
    [ "$2" -ne 0 ] || return 0
    echo "== $1 failed with status $2:"
    cat "$run/logs/$1"
}

# Records a failure that no program reports.
fail() { # label words
    echo "error: $2" >"$run/logs/$1"
    ended "$1" 1 check -
}

# The same, and ends the run.
stop() { # label words
    fail "$@"
    finish || true
    exit 1
}

# At the end of a run: fails when something is left in the temporary folder, and prints the counts as the last line.
finish() {
    [ -n "$is_outermost" ] || return 0
    left=$(cd "$run/tmp" && find . -mindepth 1 -maxdepth 2 | head -n 50)
    [ -z "$left" ] || fail temporary-folder "left in the temporary folder:
$left"
    stage "done"
    echo "longest:" $(sort -rn "$run/times" | head -n 16 | sed 's/$/;/')
    scripts/count-tests "$run"
}
