#!/usr/bin/env bash
# Times two trees of this repository in turns on one machine, and prints the ratios.
#
#     mkdir -p .before && git archive COMMIT igr benchmarks | tar -x -C .before
#     bash benchmarks/before_after.sh .before OUT
#
# Without PyTorch. ROUNDS (3), SWEEP and RESNET (flags of the two benchmarks) come from the environment.
set -euo pipefail
before=$(cd "$1" && pwd) after=$(pwd) rounds=${ROUNDS:-3}
mkdir -p "$2"
out=$(cd "$2" && pwd)
for round in $(seq "$rounds"); do
    for name in before after; do
        cd "${!name}"
        export PYTHONPATH="$PWD:$PWD/benchmarks"
        # shellcheck disable=SC2086
        python -c "import igr, runpy, sys; sys.modules['torch'] = None; runpy.run_path('benchmarks/sweep.py', run_name='__main__')" \
            ${SWEEP:-} --json "$out/sweep-$name-$round.json"
        # shellcheck disable=SC2086
        python benchmarks/resnet.py --no-torch --only plain ${RESNET:-} --json "$out/resnet-$name-$round.json"
    done
done
cd "$after"
for kind in sweep resnet; do
    python benchmarks/compare.py --before "$out/$kind"-before-*.json --after "$out/$kind"-after-*.json
done
