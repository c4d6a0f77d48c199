//! `rollrace-lab`: a Kubernetes cluster on one machine, made of network namespaces.
//!
//! A lab has nodes and pods (network namespaces), a control plane that speaks the real
//! list/watch protocol, the kernel's own iptables or nftables as the proxy's rules, real server
//! and client processes, and one rollrace agent a node. It rolls a Deployment out under load and
//! compares, connection by connection, what the clients suffered with what the agents reported.
//!
//! # Layout
//! - [`cli`]: the command line
//! - [`isolate`]: new pid, mount and network namespaces, so that nothing outlives a run
//! - [`net`]: network namespaces, the fabric that joins the nodes, a small HTTP GET
//! - [`node`]: a node: its namespace, its pods' links, the thread that kubelet and proxy run on
//! - [`kubelet`], [`proxy`]: stand-ins for the two node components that race each other
//! - [`api`], [`controllers`]: the control plane
//! - [`app`]: the server and the client that run in pods
//! - [`setup`]: the pod setups of the reference experiment
//! - [`journal`]: what happened and when; the truth for convergence
//! - [`agent`]: the rollrace agents and what they report
//! - [`compare`]: truth against reports; pure
//! - [`run`]: one run from the first link to the last line; [`demo`]: two of them and a table
//! - [`rest`]: what the agents use while nothing rolls out; [`matrix`]: every cell, several at a time
//! - [`oncall`]: how people on call reach the agents
//! - [`explained`]: what `rollrace explain` says; [`rules`]: what finds each of its rules, and what does not
//! - [`advice`]: whether what `rollrace explain` advises works
//! - [`fault`]: what befalls the API server as the agents see it
//! - [`soak`]: every kind of traffic at once, with nothing to report
//! - [`scenario`]: what else removes and breaks pods, and what each failure must be blamed on

mod advice;
mod agent;
mod api;
mod app;
mod cli;
mod compare;
mod conntrack;
mod controllers;
mod demo;
mod explained;
mod fault;
mod isolate;
mod journal;
mod kubelet;
mod matrix;
mod net;
mod node;
mod oncall;
mod prometheus;
mod proxy;
mod rest;
mod rules;
mod run;
mod scenario;
mod setup;
mod soak;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return cli::explain(&error),
    };
    let outcome = match cli.command {
        Command::Run(args) if args.inside => run::inside(&args, None),
        Command::Run(args) => run::outside(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Scenario(args) if args.lab.inside => scenario::inside(&args),
        Command::Scenario(args) => scenario::outside(&args),
        Command::Fault(args) if args.lab.inside => fault::inside(&args),
        Command::Fault(args) => fault::outside(&args),
        Command::Soak(args) if args.lab.inside => soak::inside(&args),
        Command::Soak(args) => soak::outside(&args),
        Command::Rest(args) if args.lab.inside => rest::inside(&args),
        Command::Rest(args) => rest::outside(&args),
        Command::Matrix(args) => matrix::run(&args),
        Command::Advice(args) => advice::run(&args),
        Command::AdviceCell(args) if args.inside => advice::inside(&args),
        Command::AdviceCell(args) => advice::outside(&args),
        Command::Rules(args) if args.lab.inside => rules::inside(&args),
        Command::Rules(args) => rules::outside(&args),
        Command::Table(args) => matrix::run_reference(&args),
        Command::Server(args) => app::server::run(&args),
        Command::Client(args) => app::client::run(&args),
        Command::SoakServer(args) => soak::run_server(&args),
        Command::SoakClient(args) => soak::run_client(&args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("rollrace-lab: {error:#}");
        ExitCode::from(70)
    })
}
