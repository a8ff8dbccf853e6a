"""Two changes to what protoc makes of the contract.

generated.py forget-rules FILE    a descriptor set: drop the import of buf.validate, keep the rules as unknown options
generated.py any-runtime FOLDER   generated code: drop the checks for one version of grpcio and of protobuf
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

RULES = "buf/validate/validate.proto"
_PROTOBUF_CHECK = re.compile(
    r"^from google\.protobuf import runtime_version .*\n|^_runtime_version\.Validate\w+\(\n(?:    .*\n)+\)\n",
    re.MULTILINE,
)
_GRPC_CHECK = re.compile(r"^GRPC_GENERATED_VERSION = (?:.*\n)*?    \)\n\n", re.MULTILINE)


def forget_rules(file: Path) -> None:
    """Rewrite a descriptor set. A message without the extension keeps its bytes, which validators read."""
    made = FileDescriptorSet.FromString(file.read_bytes())
    kept = FileDescriptorSet(file=[one for one in made.file if one.name != RULES])
    for one in kept.file:
        if RULES in one.dependency:
            one.dependency.remove(RULES)
    file.write_bytes(kept.SerializeToString())


def any_runtime(folder: Path) -> None:
    """Rewrite generated modules."""
    for path in sorted(folder.glob("*_pb2*.py")):
        text = _PROTOBUF_CHECK.sub("", path.read_text(encoding="utf-8"))
        text = _GRPC_CHECK.sub("", text).replace("import grpc\nimport warnings\n", "import grpc\n")
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    {"forget-rules": forget_rules, "any-runtime": any_runtime}[sys.argv[1]](Path(sys.argv[2]))
