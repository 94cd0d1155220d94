#!/bin/sh
# Sets the colour in the ConfigMap settings to blue, by a file.
set -eu
exec >/dev/null
cd "$(mktemp -d)"

# right: exported-file
# The file has no more than the field that is ours.
cat >colour.yaml <<'END'
data:
  colour: blue
END
kubectl patch configmap settings --type=merge --patch-file=colour.yaml
# end
