#!/bin/sh
# Sets the colour in the ConfigMap settings to blue.
set -eu
exec >/dev/null

# naive: change-a-field
# If another client writes between the read and the write, this is a conflict, and the colour stays.
kubectl get configmap settings --output=yaml |
    sed 's/^  colour: .*/  colour: blue/' |
    kubectl replace --filename=-
# end
