#!/bin/sh
# Sets the colour in the ConfigMap settings to blue.
set -eu
exec >/dev/null

# naive: write-only-your-field
# No version, no conflict: the old copy replaces what others have written since.
kubectl get configmap settings --output=yaml |
    sed -e 's/^  colour: .*/  colour: blue/' -e '/^  resourceVersion: /d' |
    kubectl replace --filename=-
# end
