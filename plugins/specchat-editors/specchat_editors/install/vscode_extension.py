"""The VS Code extension as one .vsix file, and the programs that install it. Needs no Node: the bundle is shipped."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from specchat.errors import SpecchatError, UsageError
from specchat_editors.install.plugin_installation import plugin_source

PROGRAMS = ("code", "code-insiders", "codium", "code-server")
PACKED = ("package.json", "dist/extension.js", "README.md", "LICENSE", "icon.png")
CONTENT_TYPES = """<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension=".json" ContentType="application/json"/>
<Default Extension=".js" ContentType="application/javascript"/>
<Default Extension=".md" ContentType="text/markdown"/><Default Extension=".png" ContentType="image/png"/>
<Default Extension=".vsixmanifest" ContentType="text/xml"/>
<Override PartName="/extension/LICENSE" ContentType="text/plain"/>
</Types>
"""
MANIFEST = """<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
<Metadata>
<Identity Language="en-US" Id={name} Version={version} Publisher={publisher}/>
<DisplayName>{title}</DisplayName><Description xml:space="preserve">{description}</Description>
<Categories>{categories}</Categories>
<Properties><Property Id="Microsoft.VisualStudio.Code.Engine" Value={engine}/></Properties>
<License>extension/LICENSE</License><Icon>extension/icon.png</Icon>
</Metadata>
<Installation><InstallationTarget Id="Microsoft.VisualStudio.Code"/></Installation>
<Dependencies/>
<Assets>
<Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/>
<Asset Type="Microsoft.VisualStudio.Services.Content.Details" Path="extension/README.md" Addressable="true"/>
<Asset Type="Microsoft.VisualStudio.Services.Content.License" Path="extension/LICENSE" Addressable="true"/>
<Asset Type="Microsoft.VisualStudio.Services.Icons.Default" Path="extension/icon.png" Addressable="true"/>
</Assets>
</PackageManifest>
"""
INSTALL_TIMEOUT_SECONDS = 120.0


def find_program() -> str | None:
    """VS Code, or a program that takes the same options."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


def extension_id() -> str:
    package = _package()
    return f"{package['publisher']}.{package['name']}"


def pack_extension(path: Path) -> None:
    """Write the extension as a .vsix file."""
    source, package = plugin_source("vscode"), _package()
    missing = [name for name in PACKED if not (source / name).is_file()]
    if missing:
        raise UsageError(f"{source} lacks {', '.join(missing)}; run 'npm ci && npm run build' there")
    manifest = MANIFEST.format(
        name=quoteattr(package["name"]), version=quoteattr(package["version"]),
        publisher=quoteattr(package["publisher"]), title=escape(package["displayName"]),
        description=escape(package["description"]), categories=escape(",".join(package["categories"])),
        engine=quoteattr(package["engines"]["vscode"]),
    )  # fmt: skip
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", CONTENT_TYPES)
        archive.writestr("extension.vsixmanifest", manifest)
        for name in PACKED:
            archive.write(source / name, f"extension/{name}")


def run_program(program: str, *arguments: str) -> str:
    """The output of VS Code, which must succeed."""
    try:
        ran = subprocess.run(
            [program, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=INSTALL_TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SpecchatError(f"{program}: {error}") from error
    if ran.returncode:
        last = ran.stdout.strip().splitlines()[-1:] or [f"exit code {ran.returncode}"]
        raise SpecchatError(f"{program} {arguments[0]}: {last[0]}")
    return ran.stdout


def _package() -> dict[str, Any]:
    return json.loads((plugin_source("vscode") / "package.json").read_text(encoding="utf-8"))
