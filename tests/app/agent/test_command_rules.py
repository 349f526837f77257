"""What rules of `run` mean: a denied command is found in every spelling, and a pattern allows no more than it says."""

from __future__ import annotations

import os
import subprocess
from random import Random
from shutil import which

import pytest

from specchat.app.agent.call_consent import Rules
from specchat.app.agent.command_rules import is_allowed, is_denied
from specchat.app.consent import Answer
from tests.app.agent.scripted import call, work
from tests.each_row import each_row

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the spellings are those of sh")
DENIED = r"""
git push
git push origin main
cd . && git push
true || git push
cd .; git push
echo x | git push
sleep 1 & git push
echo $(git push)
echo "a $(git push) b"
echo `git push`
(git push)
{ git push; }
! git push
if true; then git push; fi
for n in 1 2; do git push; done
while git push; do :; done
f() { git push; }; f
X=$(git push)
export X="$(git push)"
X=1 git push
env X=1 git push
env -i git push
env -S "git push"
env --split-string="git push"
command git push
builtin command git push
exec git push
nohup git push
nice -n 5 git push
timeout 5 git push
sudo -u other git push
setsid git push
time git push
/usr/bin/git push
./git push
git.exe push
GIT push
git -C . push
git -C "$HOME" push
git --no-pager push
git --git-dir=x --work-tree y push
gi"t" push
g''it pu's'h
"git" "push"
g\it push
git   push
git	push
git push>log
2>log git push
>log git push
bash -c "git push"
sh -ec 'cd . && git push'
sh -c "sh -c 'git push'"
env X=1 bash -c 'git push'
sudo sh -c "git push"
su -c "git push"
ssh host git push
ssh host "cd x; git push"
xargs git push
echo main | xargs -n 1 git push
find . -exec git push ";"
find . -exec sh -c "git push" ";"
watch "git push"
flock lock -c "git push"
git push "unclosed
git push; eval x
"""
ASKED = r"""
git $X
git "$X"
$X push
"$X" push
git pus?
git {push,pull}
{git,push}
eval "git push"
eval git push
alias g=git
trap "git push" EXIT
. ./script
source script
sh script
sh
echo "git push" | sh
bash -c "$X"
echo push | xargs git
git -c alias.x=push x
git config alias.x push
git submodule foreach "git push"
git rebase -x "git push"
cat <<END
$'git' push
$"git" push
echo x &>git push
echo x |& git push
git >x push
[[ x && git push ]]
[ x && git push ]
((git push))
echo ${X@P}
! ! git push
true # \\<newline>git push
printf -v 'a[$(git push)]' x
PS4='$(git push)'; set -x
find . -exec {} push ";"
tar --to-command="git push" -xf x
"""
FREE = r"""
git status
git commit -m "git push"
git commit -m push
echo git push
git log --oneline | head -n 5
cd src && python -m pytest -q tests/*.py
grep -rn "push" . > found.txt
X=1 make test
for f in a b; do wc -l $f; done
git pull
git stash push-notes
git add -u
echo "$HOME"
"""
ALLOWED = [
    ("git log*", "git log -n 5"),
    ("git log*", "git log --pretty=oneline 'a b'"),
    ("pytest*", "pytest -q tests/test_a.py"),
    ("pytest*", "pytest tests/*.py"),
    ("npm run test*", "npm run test:unit"),
    ("git -c color.ui=always log*", "git -c color.ui=always log -3"),
    ("git push*", "git push -u origin main"),
    ("git switch*", "git switch -c new"),
    ("git * --stat", "git diff --stat"),
    ("*", "ls -l"),
    ("echo a; echo b", "echo a; echo b"),
]
NOT_ALLOWED = [
    ("git*", "git -c alias.x=!sh x"),
    ("git*", "git --config-env=alias.x=Y x"),
    ("git log*", "git log --output=.git/hooks/pre-commit"),
    ("git log*", "git log --outp x"),
    ("git grep*", "git grep -Osh x"),
    ("git*", "git --no-pager -c alias.x=!sh x"),
    ("git clone*", "git clone -u x ."),
    ("git diff*", "git diff --ext-diff"),
    ("git fetch*", "git fetch --upload-pack=x ."),
    ("git rebase*", "git rebase --exec x"),
    ("git log*", "git log\ntouch x"),
    ("pytest*", "pytest -p evil"),
    ("pytest*", "pytest -vp evil"),
    ("pytest*", "pytest-evil"),
    ("pytest*", "./pytest"),
    ("pytest*", "X=1 pytest"),
    ("pytest*", "pytest *"),
    ("find*", "find . -exec rm {} +"),
    ("find*", "find . -delete"),
    ("find*", "find . -okdir x"),
    ("tar*", "tar xf a --to-command=x"),
    ("tar*", "tar --use-compress-program x -xf a"),
    ("tar*", "tar xIf x a"),
    ("ssh host*", "ssh host -o ProxyCommand=x"),
    ("rsync*", "rsync -e x a b"),
    ("sort*", "sort --compress-program=x a"),
    ("git log*", "git 'log"),
    ("git log", "git log -1"),
    ("*", "env > x"),
]


def lines(table: str) -> list[str]:
    return [line.replace("\\t", "\t") for line in table.strip().split("\n")]


@each_row("line", lines(DENIED))
def test_a_denied_command_is_found_in_every_spelling(line):
    assert is_denied(line, "git push*") is True


@each_row("line", lines(ASKED))
def test_what_is_not_certain_is_asked(line):
    line = line.replace("<newline>", "\n")
    assert is_denied(line, "git push*") is None


@each_row("line", lines(FREE))
def test_another_command_is_not_denied(line):
    assert is_denied(line, "git push*") is False


@each_row(
    "pattern line expected",
    [
        ("git push --force*", "git push origin --force-with-lease", True),
        ("git push --force*", "git push origin", False),
        ("git push --force*", "git push $X", None),
        ("git push", "cd x; git push origin", True),
        ("rm*", "git rm x", False),
        ("rm*", "ls | xargs rm", True),
        ("*", "ls", True),
        ("ls", "env " * 5000 + "ls", None),
        ("ls", "(" * 5000, None),
    ],
)
def test_patterns_of_denied_commands(pattern, line, expected):
    assert is_denied(line, pattern) is expected


@each_row("pattern line", ALLOWED)
def test_a_pattern_allows_what_it_says(pattern, line):
    assert is_allowed(line, pattern)


@each_row("pattern line", NOT_ALLOWED)
def test_a_pattern_allows_no_option_that_runs_a_program(pattern, line):
    assert not is_allowed(line, pattern)


GIT = """#!/bin/sh
while [ $# -gt 0 ]; do case "$1" in -C|-c) shift 2;; -*) shift;; *) break;; esac; done
[ "$1" = push ] && echo pushed >> "$TRACE"
exit 0
"""
GAPS = [" ", "  ", "\t", " \\\n", " -C . ", " --no-pager ", " >f ", " 2>f ", " <push ", " $n ", ' "" ', " -c a=b "]
OTHERS = ["echo x", "true", "false", "x=push", "git log", "git $x", "echo 'git push'", "ls *", "set -- push", "cd ."]
AROUND = (
    """%s|%s|(%s)|{ %s; }|! %s|$(%s)|`%s`|"$(%s)"|X=1 %s|env X=1 %s|command %s|exec %s|nice %s|time %s|sh -c '%s'
sh -c "%s"|eval '%s'|if %s; then :; fi|for x in push; do %s; done|while %s; do break; done|f() { %s; }; f|x=$(%s)
echo push / xargs %s|case a in a) %s;; esac|cat <<E\\n%s\\nE\\n|[ -n "$(%s)" ]|timeout 1 %s|%s # x|true # %s\\n
echo \\"; %s; \\"|trap '%s' EXIT|find . -maxdepth 0 -exec %s \\;""".replace("\n", "|")
    .replace("\\n", "\n")
    .split("|")
)


def spelled(word: str, random: Random) -> str:
    """The same word for a shell, in one of its many spellings."""
    ways = ["{0}", "{0}", "{0}", "'{0}'", '"{0}"', "\\{0}", "{0}''", "{0}\\\n"]
    return "".join(random.choice(ways).format(letter) for letter in word)


def random_line(random: Random) -> str:
    def command() -> str:
        push = spelled("git", random) + random.choice(GAPS) + spelled("push", random)
        text = random.choice([push, push, random.choice(OTHERS)])
        for _around in range(random.choice([1, 1, 2])):
            text = random.choice(AROUND).replace(" / ", " | ").replace("%s", text)
        return text

    return random.choice([" && ", " || ", "; ", " | ", " & ", "\n"]).join(
        command() for _ in range(random.randint(1, 3))
    )


@pytest.mark.parametrize("count", [150, pytest.param(3000, marks=pytest.mark.full)])
def test_no_shell_runs_a_denied_command_in_a_line_that_is_free(tmp_path, count):
    git, trace, random = tmp_path / "git", tmp_path / "trace", Random(1)
    git.write_text(GIT)
    git.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TRACE": str(trace)}
    free = [line for line in (random_line(random) for _ in range(count)) if is_denied(line, "git push*") is False]

    assert free
    for line in free:
        for shell in filter(None, (which("sh"), which("bash"))):
            subprocess.run([shell, "-c", line], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL,
                           capture_output=True, check=False, timeout=180)  # fmt: skip
            assert not trace.exists(), (shell, line)


def test_a_line_that_is_not_certain_asks_whatever_is_allowed(files, project):
    rules = Rules.parse(["run"], ["run:git push*"])
    unsure = call("run", command="eval touch ran")
    work(files, [unsure], "so", rules=rules)
    assert not (project / "ran").exists()

    done = work(files, [unsure], [call("run", command="touch sure; cd . && git push")], "so", rules=rules,
                answers=[Answer.ONCE])  # fmt: skip

    assert (1, True, False) == (len(done.questions), (project / "ran").exists(), (project / "sure").exists())
