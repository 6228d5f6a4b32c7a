"""`amdgpu-ep serve` as an application of Ray Serve.

Every replica starts a server of its own on a loopback port, and streams requests through it.

    serve run --app-dir deploy/ray --working-dir deploy/ray amdgpu_ep_ray:application model=/models/llama num_gpus=0.5

docs/deploy.md lists the settings.
"""
from ray import serve

from .replica import Replica
from .settings import Settings

__all__ = ["Settings", "application"]

# Routes the requests of a session to the same replica, whose prefix cache has the beginning of the conversation.
AFFINITY = {"request_router_class": "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"}


def application(settings: Settings) -> serve.Application:
    """Builds the application, for `serve run` and for the `import_path` of a configuration."""
    slots = settings.share().slots
    options = {
        "ray_actor_options": {"num_cpus": settings.num_cpus, "num_gpus": settings.num_gpus},
        # Twice as many requests as run at once: when one ends, the next one is there already.
        "max_ongoing_requests": 2 * slots,
        "autoscaling_config": {
            "min_replicas": settings.min_replicas,
            "max_replicas": settings.max_replicas,
            "target_ongoing_requests": slots,
        },
        "health_check_period_s": 5,
        "health_check_timeout_s": 30,
        # More than the server takes to end its requests.
        "graceful_shutdown_timeout_s": settings.drain_seconds + 15,
    }
    if settings.session_affinity:
        options["request_router_config"] = AFFINITY
    return serve.deployment(Replica, name="amdgpu-ep", **options).bind(settings.model_dump())
