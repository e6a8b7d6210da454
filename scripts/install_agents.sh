#!/bin/sh
# Installs the coding agents that `make test-agents` runs:
#   install_agents.sh DIRECTORY
# They come from npm and end up in DIRECTORY/node_modules (850 MB).
set -eu

directory=${1:?usage: install_agents.sh DIRECTORY}
codex=0.171.0
opencode=1.18.33
qwen_code=0.15.10 # later ones need Node.js 22

node -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)' && command -v npm >/dev/null || {
  echo "the coding agents need Node.js 20 or newer with npm; install it, e.g. from https://nodejs.org" >&2
  exit 1
}
mkdir -p "$directory/home"
cd "$directory"
echo '{"private": true}' >package.json
npm install --no-audit --no-fund --no-update-notifier --ignore-scripts --save-exact \
  "@openai/codex@$codex" "opencode-ai@$opencode" "@qwen-code/qwen-code@$qwen_code"

# Of all their scripts this one is needed: it chooses OpenCode's program for this machine.
node node_modules/opencode-ai/postinstall.mjs

for agent in codex opencode qwen; do
  HOME=$PWD/home "node_modules/.bin/$agent" --version >/dev/null
done
