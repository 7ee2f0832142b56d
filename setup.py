"""Builds the Cython kernels. Everything else about the package is in pyproject.toml."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

KERNELS = Path("src/penstock/_kernels")

ADVICE = """
Penstock could not compile its kernels, and does not run without them.
It needs a C compiler and Python's headers. On Debian:

    apt-get install gcc python3-dev

Then run the same command again.
"""


class BuildKernels(build_ext):
    """A failed build is an error that says what to install, never a slow fallback."""

    def build_extension(self, extension: Extension) -> None:
        try:
            super().build_extension(extension)
        except (CompileError, LinkError) as error:
            raise SystemExit(f"{error}\n{ADVICE}") from error


def kernel(source: Path) -> Extension:
    return Extension(
        f"penstock._kernels.{source.stem}",
        [str(source)],
        depends=[str(header) for header in sorted(KERNELS.glob("*.h"))],
        include_dirs=[str(KERNELS)],
        extra_compile_args=["-O3", "-Wall", "-Wno-unused-function"],
    )


setup(
    ext_modules=cythonize(
        [kernel(source) for source in sorted(KERNELS.glob("*.pyx"))],
        include_path=["src"],
        # Hot loops index pointers, which nobody checks; what indexes Python objects stays checked.
        compiler_directives={"language_level": "3", "cdivision": True},
    ),
    cmdclass={"build_ext": BuildKernels},
)
