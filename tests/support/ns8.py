"""What surrounds the steps of a node's actions in NS8, written from its documentation: the node's
agent that starts them, and the agent library that modules call.

ns8.py task            runs the task on standard input as the agent does; prints what comes back
ns8.py module ID CODE  runs CODE as a step of module ID would, with the functions of the library
"""

import json
import os
import subprocess
import sys


def com_fd(kind):
    """The descriptor for the agent's commands: its number for the step, what to close afterwards,
    and where to read."""
    if kind == "none":
        return None, [], None
    if kind not in ("pipe", "closed", "deaf"):
        return kind, [], None
    reader, writer = os.pipe()
    if kind == "pipe":
        return str(writer), [writer], reader
    os.close(reader)
    if kind == "closed":
        os.close(writer)
        return str(writer), [], None
    return str(writer), [writer], None


def run_step(path, task):
    """Starts one step. Returns its exit status, its output and error, and its commands."""
    number, writers, reader = com_fd(task.get("com_fd", "pipe"))
    env = dict(os.environ, AGENT_TASK_ID="7", AGENT_TASK_ACTION=task["action"])
    if number is not None:
        env["AGENT_COMFD"] = number
    if task.get("user") is not None:
        env["AGENT_TASK_USER"] = task["user"]
    text = task["text"] if "text" in task else json.dumps(task["data"])
    step = subprocess.run(
        [path], input=text, capture_output=True, text=True, env=env, pass_fds=writers, check=False,
        cwd=os.environ["AGENT_STATE_DIR"],
    )
    for writer in writers:
        os.close(writer)
    commands = []
    if reader is not None:
        with os.fdopen(reader) as lines:
            commands = [line.split() for line in lines]
    return step, commands


def run_task(task):
    """Runs all steps of the action. What they print is taken together."""
    directory = os.path.join(os.environ["AGENT_INSTALL_DIR"], "actions", task["action"])
    reply = {"status": "running", "exit_code": 0, "output": "", "error": ""}
    for name in sorted(os.listdir(directory)):
        step, commands = run_step(os.path.join(directory, name), task)
        reply["output"] += step.stdout
        reply["error"] += step.stderr
        if ["set-status", "validation-failed"] in commands:
            reply["status"] = "validation-failed"
        if step.returncode != 0:
            reply["exit_code"] = step.returncode
            if reply["status"] == "running":
                reply["status"] = "aborted"
            return reply
        if reply["status"] == "validation-failed":
            reply["exit_code"] = 10
            return reply
    reply["status"] = "completed"
    return reply


class Library:
    """The functions of NS8's Python package agent that are about ports."""

    def __init__(self, module_id):
        self.module_id = module_id

    def run(self, action, data):
        reply = run_task({"action": action, "user": f"module/{self.module_id}", "data": data})
        if reply["exit_code"] != 0:
            raise Exception(reply["error"])
        return json.loads(reply["output"])

    def allocate_ports(self, ports_number, protocol, module_id="", keep_existing=False):
        return self.run("allocate-ports", {
            "ports": ports_number, "module_id": module_id or self.module_id,
            "protocol": protocol, "keep_existing": keep_existing,
        })

    def deallocate_ports(self, protocol, module_id=""):
        data = {"module_id": module_id or self.module_id, "protocol": protocol}
        return self.run("deallocate-ports", data)


if sys.argv[1] == "task":
    print(json.dumps(run_task(json.load(sys.stdin))))
else:
    exec(sys.argv[3], {"agent": Library(sys.argv[2])})
