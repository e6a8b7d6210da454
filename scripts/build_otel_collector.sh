#!/bin/sh
# Builds a collector of OpenTelemetry with Go, for `make test-collector`: build_otel_collector.sh [DIRECTORY]
# Left in DIRECTORY (~/.cache/vllm-router unless one is given): otel-collector-VERSION, which later runs find there.
# It takes OTLP and writes files, and has no other component. Everything comes from the Go module proxy, checked against
# Go's checksum database; the versions here are exact, and those of all other modules follow from them.
set -eu

version=0.160.0
stable=1.66.0 # of the modules that were released with it, and have a stable interface

directory=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/vllm-router}
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
binary=$directory/otel-collector-$version
if [ -x "$binary" ]; then
  exit 0
fi
if ! command -v go >/dev/null 2>&1; then
  echo "build_otel_collector.sh: there is no go on PATH, which builds collector $version; install Go 1.26 or newer" >&2
  exit 1
fi

module=$(mktemp -d "$directory/building.XXXXXX")
trap 'rm -rf "$module"' EXIT
trap 'exit 1' HUP INT TERM
cd "$module"
export CGO_ENABLED=0 GOFLAGS="-mod=mod -buildvcs=false" GOWORK=off

# What OpenTelemetry's own builder generates comes to this. The builder also runs `go mod tidy`, which asks for the tests'
# modules of all modules.
cat >go.mod <<END
module otel-collector
go 1.26
require (
	github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter v$version
	go.opentelemetry.io/collector/confmap/provider/fileprovider v$stable
	go.opentelemetry.io/collector/otelcol v$version
	go.opentelemetry.io/collector/receiver/otlpreceiver v$version
)
END
cat >main.go <<END
package main

import (
	"log"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

func factories() (made otelcol.Factories, err error) {
	made.Telemetry = otelconftelemetry.NewFactory()
	if made.Receivers, err = otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory()); err != nil {
		return made, err
	}
	made.Exporters, err = otelcol.MakeFactoryMap[exporter.Factory](fileexporter.NewFactory())
	return made, err
}

func main() {
	resolver := confmap.ResolverSettings{
		ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()},
		DefaultScheme:     "file",
	}
	settings := otelcol.CollectorSettings{
		BuildInfo:              component.BuildInfo{Command: "otel-collector", Version: "$version"},
		Factories:              factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: resolver},
	}
	if err := otelcol.NewCommand(settings).Execute(); err != nil {
		log.Fatal(err)
	}
}
END
go build -trimpath -ldflags "-s -w" -o otel-collector .
mv otel-collector "$binary" # within one file system, so that no other run finds half of it
