#!/bin/sh
# Sets the colour in the ConfigMap settings to blue, while others write faster.
set -eu
exec >/dev/null

# naive: back-off
for _ in 1 2 3 4 5; do
    # No pause: all five attempts meet the same crowd.
    if kubectl get configmap settings --output=yaml |
        sed 's/^  colour: .*/  colour: blue/' |
        kubectl replace --filename=-; then
        exit 0
    fi
done
exit 1
# end
