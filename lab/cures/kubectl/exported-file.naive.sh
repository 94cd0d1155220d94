#!/bin/sh
# Sets the colour in the ConfigMap settings to blue, by an exported file.
set -eu
exec >/dev/null
cd "$(mktemp -d)"

# naive: exported-file
kubectl get configmap settings --output=yaml >settings.yaml
# The file keeps the version of the export. If another client has written since, this is a conflict.
sed 's/^  colour: .*/  colour: blue/' settings.yaml >changed.yaml
kubectl replace --filename=changed.yaml
# end
