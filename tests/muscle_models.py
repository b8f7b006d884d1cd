"""Small bodies with muscles, for the tests."""

from dataclasses import replace
from pathlib import Path

import mujoco
from gymnasium import spaces

from sb3_hrl.envs.task import Task, load_task
from sb3_hrl.muscle import MuscleInterface, MuscleSettings

# Two joints in the vertical plane, six muscles along spatial tendons, so that moment arms change with the pose.
ARM = """
<mujoco model="arm">
  <option timestep="0.002" integrator="implicitfast"/>
  <default>
    <muscle ctrllimited="true" ctrlrange="0 1" range="0.6 1.3"/>
    <joint damping="0.05"/>
  </default>
  <worldbody>
    <site name="front" pos="0.05 0 0.06"/>
    <site name="back" pos="-0.05 0 0.06"/>
    <body name="upper">
      <joint name="shoulder" axis="0 -1 0" range="-60 120"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.03" mass="1.9"/>
      <site name="upper_front" pos="0.04 0 -0.1"/>
      <site name="upper_back" pos="-0.04 0 -0.1"/>
      <site name="upper_low_front" pos="0.04 0 -0.22"/>
      <site name="upper_low_back" pos="-0.04 0 -0.22"/>
      <body name="lower" pos="0 0 -0.3">
        <joint name="elbow" axis="0 -1 0" range="0 140"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.025" mass="1.5"/>
        <site name="lower_front" pos="0.03 0 -0.06"/>
        <site name="lower_back" pos="-0.03 0 0.03"/>
      </body>
    </body>
  </worldbody>
  <tendon>
    <spatial name="shoulder_flexor"><site site="front"/><site site="upper_front"/></spatial>
    <spatial name="shoulder_extensor"><site site="back"/><site site="upper_back"/></spatial>
    <spatial name="elbow_flexor"><site site="upper_low_front"/><site site="lower_front"/></spatial>
    <spatial name="elbow_extensor"><site site="upper_low_back"/><site site="lower_back"/></spatial>
    <spatial name="biarticular_flexor"><site site="front"/><site site="upper_low_front"/><site site="lower_front"/></spatial>
    <spatial name="biarticular_extensor"><site site="back"/><site site="upper_low_back"/><site site="lower_back"/></spatial>
  </tendon>
  <actuator>
    <muscle name="shoulder_flexor" tendon="shoulder_flexor" force="800"/>
    <muscle name="shoulder_extensor" tendon="shoulder_extensor" force="800"/>
    <muscle name="elbow_flexor" tendon="elbow_flexor" force="700"/>
    <muscle name="elbow_extensor" tendon="elbow_extensor" force="700"/>
    <muscle name="biarticular_flexor" tendon="biarticular_flexor" force="400"/>
    <muscle name="biarticular_extensor" tendon="biarticular_extensor" force="500"/>
  </actuator>
</mujoco>
"""

# A leg that stands on the floor. Its root is free in the plane, the shin slides with the knee (an equality of second order,
# and the toe follows the shin by another), and a motor and a position servo stand among the muscles, so that neither
# controls, outputs nor activations have the actuators' numbers.
LEG = """
<mujoco model="leg">
  <option timestep="0.002" integrator="implicitfast"/>
  <default>
    <muscle ctrllimited="true" ctrlrange="0 1"/>
    <joint damping="0.5"/>
    <geom friction="0.9 0.1 0.1"/>
  </default>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1"/>
    <body name="trunk" pos="0 0 1.02">
      <joint name="root_x" type="slide" axis="1 0 0" damping="0"/>
      <joint name="root_z" type="slide" axis="0 0 1" damping="0"/>
      <joint name="root_pitch" axis="0 1 0" damping="0"/>
      <geom type="capsule" fromto="0 0 0.05 0 0 0.4" size="0.08" mass="10"/>
      <body name="head" pos="0 0 0.5">
        <joint name="neck" axis="0 1 0" range="-40 40"/>
        <geom type="sphere" size="0.08" mass="1"/>
      </body>
      <body name="thigh">
        <joint name="hip" axis="0 -1 0" range="-30 100"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.45" size="0.05" mass="5"/>
        <body name="shin" pos="0 0 -0.45">
          <joint name="knee" axis="0 1 0" range="-2 120"/>
          <joint name="knee_slide" type="slide" axis="0 0 1" range="-0.1 0.1"/>
          <geom type="capsule" fromto="0 0 0 0 0 -0.45" size="0.04" mass="3"/>
          <body name="foot" pos="0 0 -0.5">
            <joint name="ankle" axis="0 -1 0" range="-40 40"/>
            <geom type="box" size="0.12 0.05 0.03" pos="0.05 0 -0.03" mass="1"/>
            <body name="toe" pos="0.18 0 -0.03">
              <joint name="toe" axis="0 -1 0" range="-40 40"/>
              <geom type="box" size="0.03 0.05 0.02" mass="0.2"/>
            </body>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <equality>
    <joint joint1="toe" joint2="knee_slide" polycoef="0 3 0 0 0"/>
    <joint joint1="knee_slide" joint2="knee" polycoef="0 -0.01 0.02 0.004 -0.001"/>
  </equality>
  <tendon>
    <fixed name="flexor"><joint joint="hip" coef="-0.08"/><joint joint="knee" coef="0.03"/></fixed>
    <fixed name="hamstring"><joint joint="hip" coef="0.07"/><joint joint="knee" coef="-0.04"/></fixed>
    <fixed name="vasti"><joint joint="knee" coef="0.05"/><joint joint="knee_slide" coef="0.8"/></fixed>
    <fixed name="gastrocnemius">
      <joint joint="knee" coef="-0.03"/><joint joint="ankle" coef="0.05"/><joint joint="toe" coef="0.01"/>
    </fixed>
    <fixed name="tibialis"><joint joint="ankle" coef="-0.04"/></fixed>
    <fixed name="gluteus"><joint joint="hip" coef="0.08"/></fixed>
  </tendon>
  <actuator>
    <motor name="neck_motor" joint="neck" gear="5"/>
    <muscle name="flexor" tendon="flexor" force="2000" lengthrange="-0.2 0.2"/>
    <muscle name="hamstring" tendon="hamstring" force="3000" lengthrange="-0.2 0.2"/>
    <general name="vasti" tendon="vasti" gaintype="muscle" biastype="muscle" dyntype="muscle" lengthrange="-0.1 0.25"
      ctrlrange="0 1" gainprm="0.75 1.05 6000 200 0.5 1.6 1.5 1.3 1.2" biasprm="0.75 1.05 6000 200 0.5 1.6 1.5 1.3 1.2"
      dynprm="0.01 0.04"/>
    <intvelocity name="neck_servo" joint="neck" kp="3" actrange="-0.5 0.5"/>
    <muscle name="gastrocnemius" tendon="gastrocnemius" force="1500" lengthrange="-0.1 0.1"/>
    <muscle name="tibialis" tendon="tibialis" force="800" lengthrange="-0.1 0.1"/>
    <muscle name="gluteus" tendon="gluteus" force="1500" lengthrange="-0.2 0.2"/>
  </actuator>
</mujoco>
"""

_TASK = """
id: Muscles-v0
model: body.xml
frame_skip: {frame_skip}
observation: [{{term: qpos}}, {{term: qvel}}, {{term: act}}, {{term: ctrl}}, {{term: qfrc_constraint}}]
values: {{speed: {{term: qvel, index: 0}}, last: {{term: qpos, index: -1}}}}
reward: speed
reset: [{{term: qpos_uniform, scale: 0.02}}, {{term: qvel_normal, scale: 0.1}}]
info: [last]
"""


def muscle_task(folder: Path, xml: str, settings: MuscleSettings, frame_skip: int = 5) -> tuple[Task, MuscleInterface]:
    """
    :param folder: where the files go
    :param xml: the body
    :param settings: how it is driven
    :param frame_skip: substeps of a step
    :return: a task without an end, whose observation is the whole state, and the body's muscles
    """
    (folder / "body.xml").write_text(xml)
    (folder / "task.yaml").write_text(_TASK.format(frame_skip=frame_skip))
    interface = MuscleInterface(mujoco.MjModel.from_xml_string(xml), settings.joints)
    low, high = settings.action_bounds(interface)
    task = load_task(folder / "task.yaml")
    spec = task.spec._replace(muscles=settings.in_numbers(interface))
    return replace(task, spec=spec, action_space=spaces.Box(low, high)), interface
