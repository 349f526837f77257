"""What rules of `run` mean: a denied command is found in every spelling, and a pattern allows no more than it says."""

from __future__ import annotations

import os

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


def test_a_line_that_is_not_certain_asks_whatever_is_allowed(files, project):
    rules = Rules.parse(["run"], ["run:git push*"])
    unsure = call("run", command="eval touch ran")
    work(files, [unsure], "so", rules=rules)
    assert not (project / "ran").exists()

    done = work(files, [unsure], [call("run", command="touch sure; cd . && git push")], "so", rules=rules,
                answers=[Answer.ONCE])  # fmt: skip

    assert (1, True, False) == (len(done.questions), (project / "ran").exists(), (project / "sure").exists())
