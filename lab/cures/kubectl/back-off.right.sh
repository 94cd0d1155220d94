#!/bin/sh
# Sets the colour in the ConfigMap settings to blue, while others write faster.
set -eu
exec >/dev/null

# right: back-off
for pause in 0.1 0.2 0.4 0.8 1.6 3.2 4.8 6.4; do
    if kubectl get configmap settings --output=yaml |
        sed 's/^  colour: .*/  colour: blue/' |
        kubectl replace --filename=-; then
        exit 0
    fi
    # Longer each time. The last digit differs from one process to the next.
    sleep "$pause$(($$ % 10))"
done
exit 1
# end
