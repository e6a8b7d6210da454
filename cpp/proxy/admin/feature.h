// Feature: a part of the router that a server has without knowing it: a pair of rooms, cpp/<name> for what needs no server
// and cpp/proxy/<name> for what does. One row registers it (proxy/server/features.cc):
//
//   check       options that make no sense together, before anything is made
//   add         objects that threads share or keep (ServerLimits::features, IoThread::features), and services
//   open        ports of its own, once the server has its own
//   may_follow  whether it can follow other settings than at the start: all features can, or none is told; any thread
//   follow      these settings, before requests have them; any thread
//   endpoints   paths that the router serves itself
//   sections    members of another subject's pages
//
// Its metrics are its services' (Service::WriteMetrics), or what it adds to Services::AddMetrics; its steps stand in the table of proxy/steps/steps.cc, whose order is
// that of a request. A feature includes layers and its own rooms, never another feature (tests/repo/test_arrows.py).
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "proxy/admin/own_endpoint.h"

namespace vllm_router {

class Router;
class Services;
class Telemetry;
struct IoThread;
struct ServerLimits;
struct ServerOptions;
struct Settings;

// What a server is made of. The services that it adds itself are there already: health checks, models, loads, drains.
struct ServerParts {
  const ServerOptions& options;
  Router& router;
  std::span<const std::unique_ptr<IoThread>> threads;  // the last one is the control thread
  const std::vector<const Telemetry*>& telemetries;    // of all threads
  ServerLimits& limits;
  Services& services;
};

// The paths of one subject (own_endpoint.h).
using EndpointTable = std::span<const OwnEndpoint> (*)();

struct Feature {
  std::string_view name;

  // Each may be null or empty.
  Status (*check)(const ServerOptions& options, const Router& router) = nullptr;
  Status (*add)(const ServerParts& server) = nullptr;
  Status (*open)(const Services& services) = nullptr;
  Status (*may_follow)(const Settings& settings) = nullptr;
  void (*follow)(const ServerLimits& limits, const Settings& settings) = nullptr;
  std::span<const EndpointTable> endpoints = {};
  std::span<const PageSection> sections = {};
};

}  // namespace vllm_router
