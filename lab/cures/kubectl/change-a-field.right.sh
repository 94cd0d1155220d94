#!/bin/sh
# Sets the colour in the ConfigMap settings to blue.
set -eu
exec >/dev/null

# right: change-a-field
set_colour() {
    kubectl get configmap settings --output=yaml |
        sed 's/^  colour: .*/  colour: blue/' |
        kubectl replace --filename=- 2>&1
}

attempts=1
# After a conflict: reads again, and changes what it has read.
until answer=$(set_colour); do
    case $answer in
    *"(Conflict)"*) attempts=$((attempts + 1)) ;;
    *) attempts=6 ;;
    esac
    if [ "$attempts" -gt 5 ]; then
        echo "$answer" >&2
        exit 1
    fi
done
# end
