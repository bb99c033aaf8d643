"""Checks JobSet manifests against the types of JobSet's API: python jobset.py MANIFEST...

The types are those of the package kubeflow-trainer-api, generated from JobSet's OpenAPI document. They drop
fields that they do not know and fill in required fields that are missing, so a manifest is valid if parsing
leaves it unchanged. Prints the paths of all differences, and exits with 1 if there are any.
"""

import sys

import yaml
from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet as JobSet


def differences(given, parsed, path):
    if isinstance(given, dict) and isinstance(parsed, dict):
        for key, value in given.items():
            if key in parsed:
                yield from differences(value, parsed[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}: unknown"
        for key in parsed.keys() - given.keys():
            yield f"{path}.{key}: missing"
    elif isinstance(given, list) and isinstance(parsed, list) and len(given) == len(parsed):
        for index, (one, other) in enumerate(zip(given, parsed)):
            yield from differences(one, other, f"{path}[{index}]")
    elif given != parsed:
        yield f"{path}: {given!r} was parsed as {parsed!r}"


problems = []
for manifest in sys.argv[1:]:
    with open(manifest) as file:
        given = yaml.safe_load(file)
    try:
        problems += differences(given, JobSet.from_dict(given).to_dict(), manifest)
    except ValueError as error:
        problems.append(f"{manifest}: {error}")
print("\n".join(problems) or "valid")
sys.exit(bool(problems))
